"""A report without names of people: hashed by the key of the site, as in a history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...history.hashing import Hash, site_hash
from ..report_data import CapacityReport, Dimension, Opportunity, Share

_HASHED = {Dimension.USER: "user", Dimension.ACCOUNT: "account"}


def anonymised(report: CapacityReport, site_key: Path) -> CapacityReport:
    """Users, accounts and names of jobs hashed; equal names stay equal.

    Where the jobs come from is told by its kind alone: a path or a URL may hold a name.
    Raises HistoryError where the key cannot be used, or others can read it.
    """
    hashed = site_hash(site_key)
    splits = {
        dimension: _shares(shares, _HASHED.get(dimension), hashed)
        for dimension, shares in report.splits.items()
    }
    queue = tuple(
        replace(job, user=hashed("user", job.user), name=hashed("name", job.name))
        for job in report.queue
    )
    found = tuple(_opportunity(each, hashed) for each in report.opportunities)
    losses = tuple(
        replace(one, user=hashed("user", one.user), account=hashed("account", one.account))
        for one in report.losses
    )
    origin = replace(report.origin, name=report.origin.kind)
    return replace(
        report, splits=splits, queue=queue, opportunities=found, losses=losses, origin=origin
    )


def _shares(shares: tuple[Share, ...], kind: str | None, hashed: Hash) -> tuple[Share, ...]:
    if kind is None:
        return shares
    return tuple(replace(share, key=hashed(kind, share.key)) for share in shares)


def _opportunity(found: Opportunity, hashed: Hash) -> Opportunity:
    return replace(found, users=tuple(hashed("user", user) for user in found.users))
