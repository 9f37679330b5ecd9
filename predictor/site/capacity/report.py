"""The whole report of a period, put together from its parts; without names, and of one person."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from profiles.gpus import known_gpu

from ...errors import NotInstalledError, TraceError
from ...estimate.core import Predictor
from ...planning.cost import Terms
from ..history.anonymise import site_hash
from ..history.ingest import Period
from ..replay import Pool
from . import facts
from .configurations import Outlook, configurations
from .facts import use
from .forecast import forecasts
from .jobs import JobSource, PeriodJobs, is_sample, jobs_of, peak_gpus, pools_of, stated_pools
from .measured import JobUse, measured_jobs, use_by_user, wasteful
from .opportunities import better
from .queue import cleared, estimates_at, queue_at
from .report_data import (
    Alternative,
    CapacityReport,
    Dimension,
    GpuHours,
    Opportunity,
    Origin,
    WhatIf,
)
from .whatif import MOST_CONFIGURATIONS, ClusterChange, alternatives, what_if

TITLE = "GPU capacity"
NO_TERMS = Terms()
_GUESSED = (
    "How many GPUs there are is not stated of {} (--gpus TYPE:GPUS): idle GPU-hours are not told, "
    "and elsewhere a type counts as large as the most of it that was in use at once."
)
_MORE_RAN = "{0:,} {1} were in use at once, of {2:,} stated: idle hours and waits are wrong."
_NEVER_SEEN = "No job ran on {1}, and no GPU is known by that name: is it spelt as in the jobs?"
_HASHED = {Dimension.USER: "user", Dimension.ACCOUNT: "account"}
# What a report tells of single users: by field, the names in it that are hashed.
_PERSONAL = {
    "queue": ("user", "name"),
    "losses": ("user", "account"),
    "measured": ("user",),
    "waste": ("user",),
}
# What it tells of everybody together.
_OF_ALL = (
    *("use", "waits", "limits", "predictions", "tensor_cores", "wait_causes", "backlog"),
    *("forecasts", "alternatives"),
)
_SHARED = "GPU-hours of a change are those of all like jobs, also of other users."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a report is to hold besides facts; ``pools`` are the GPUs there are, where known.

    ``measured`` tells what GPUs of jobs really did.
    """

    pools: tuple[Pool, ...] = ()
    terms: Terms = NO_TERMS
    plan: ClusterChange | None = None
    most_configurations: int = MOST_CONFIGURATIONS
    measured: Sequence[JobUse] = ()


def _doubts(table: pl.DataFrame, stated: Sequence[Pool]) -> list[str]:
    """What is stated of GPUs, and not seen so."""
    most = peak_gpus(table)
    found = [(most.get(pool.name, 0), pool.name, pool.gpus) for pool in stated]
    notes = [_MORE_RAN.format(*one) for one in found if one[0] > one[2]]
    return notes + [
        _NEVER_SEEN.format(*one) for one in found if not one[0] and not known_gpu(one[1])
    ]


def _elsewhere(frame: pl.LazyFrame) -> list[str]:
    """When the jobs ran, of a source that has none in the period."""
    ended = frame.filter(pl.col("end_s").is_finite() & pl.col("start_s").is_not_null())
    first, last = ended.select(first=pl.min("end_s"), last=pl.max("end_s")).collect().row(0)
    if first is None:
        return []
    days = [f"{datetime.fromtimestamp(one, UTC):%Y-%m-%d}" for one in (first, last)]
    return ["No job ran in the period: those known ended from {} to {}.".format(*days)]


def make_report(
    source: JobSource,
    period: Period,
    predictor: Predictor,
    wanted: Wanted | None = None,
    tell: Callable[[str, float], None] = lambda stage, share: None,
) -> CapacityReport:
    """The report of a period.

    ``tell`` is called with stage and share done. Raises HistoryError where the source cannot be
    read, TraceError for a plan that cannot be replayed.
    """
    wanted = Wanted() if wanted is None else wanted
    wanted = replace(wanted, pools=stated_pools(wanted.pools, source.pools))
    jobs = jobs_of(source.frame, period)
    pools = pools_of(jobs.table, wanted.pools)
    guessed = [pool.name for pool in pools if pool not in wanted.pools]
    notes = [_GUESSED.format(", ".join(guessed))] if guessed else []
    notes += _doubts(jobs.table, wanted.pools)
    notes += _elsewhere(source.frame) if jobs.table.is_empty() else []
    really = measured_jobs(jobs, wanted.measured)
    if wanted.measured:
        notes.append(f"GPUs were measured in {really.height:,} of {jobs.table.height:,} jobs.")
    outlook = Outlook(predictor)
    tell("what a change would save", 0.1)
    opportunities, looked = _opportunities(jobs, outlook, pools, wanted)
    gpus_known = {pool.name: pool.gpus for pool in wanted.pools}
    tell("what is to come", 0.4)
    estimate = estimates_at(source, period.until_s, pools, predictor)
    try:
        forecast, why_not = forecasts(source.frame, period.until_s, gpus_known, estimate)
    except NotInstalledError as error:
        forecast, why_not = (), (f"No forecast: {error}.",)
    tell("the queue", 0.5)
    drained = cleared(queue_at(source, period.until_s), pools, estimate)
    tell("what if", 0.6)
    changed, others = _changes(jobs, outlook, pools, wanted)
    known = None if guessed or not pools else sum(pool.gpus for pool in pools)
    return CapacityReport(
        made_s=time.time(),
        title=TITLE,
        version=version("precision-time"),
        currency=wanted.terms.tariff.currency or None,
        origin=Origin(
            kind=source.kind,
            name=source.name,
            jobs=jobs.table.height,
            sample=is_sample(jobs.table.lazy()),
            set_aside=source.set_aside + jobs.set_aside + drained.set_aside,
        ),
        period=period,
        gpus={pool.name: pool.gpus for pool in pools},
        hours=facts.hours_of(jobs.table),
        capacity=None if known is None else known * period.hours,
        splits=facts.splits(jobs, gpus_known),
        use=use(jobs, known),
        waits=facts.waits(jobs),
        limits=facts.limits(jobs),
        predictions=facts.predictions(jobs),
        tensor_cores=facts.tensor_cores(jobs),
        losses=facts.losses(jobs),
        wait_causes=facts.wait_causes(jobs, gpus_known) + facts.waiting_now(source.live),
        measured=use_by_user(really),
        waste=wasteful(really),
        opportunities=opportunities,
        backlog=drained.backlog,
        queue=drained.queue,
        forecasts=forecast,
        whatif=changed,
        alternatives=others,
        notes=(*notes, looked, *why_not, *drained.notes),
    )


def _opportunities(
    jobs: PeriodJobs, outlook: Outlook, pools: Sequence[Pool], wanted: Wanted
) -> tuple[tuple[Opportunity, ...], str]:
    """What a change of single jobs would save, and where it was looked for."""
    found = configurations(jobs.table, outlook, wanted.most_configurations)
    hours = float(jobs.table["hours"].sum())
    share = sum(one.hours for one in found) / hours if hours else 0.0
    note = (
        f"Changes were looked for in the {len(found)} configurations with most GPU-hours that"
        f" could be predicted: {100 * share:.0f} % of all GPU-hours."
    )
    return tuple(better(found, outlook, [pool.name for pool in pools], wanted.terms)), note


def _changes(
    jobs: PeriodJobs, outlook: Outlook, pools: Sequence[Pool], wanted: Wanted
) -> tuple[WhatIf | None, tuple[Alternative, ...]]:
    """What the plan and other changes of the cluster would bring."""
    terms, most, changed = wanted.terms, wanted.most_configurations, None
    if wanted.plan is not None:
        changed = what_if(jobs, wanted.plan, outlook, terms, pools, most=most)
    others: tuple[Alternative, ...] = ()
    with suppress(TraceError):  # GPUs stated that no job may run on: the notes tell of them
        others = alternatives(jobs, outlook, terms, pools, most=most) if pools else ()
    return changed, others


def anonymised(report: CapacityReport, site_key: Path) -> CapacityReport:
    """Users, accounts and names of jobs hashed; equal names stay equal.

    Where the jobs come from is told by its kind alone: a path or a URL may hold a name.
    Raises HistoryError where the key cannot be used, or others can read it.
    """
    hashed = site_hash(site_key)
    splits = {
        dimension: tuple(
            replace(share, key=hashed(_HASHED[dimension], share.key))
            if dimension in _HASHED
            else share
            for share in shares
        )
        for dimension, shares in report.splits.items()
    }
    changes: dict[str, Any] = {
        field: tuple(
            replace(row, **{name: hashed(name, getattr(row, name)) for name in names})
            for row in getattr(report, field)
        )
        for field, names in _PERSONAL.items()
    }
    changes["opportunities"] = tuple(
        replace(one, users=tuple(hashed("user", user) for user in one.users))
        for one in report.opportunities
    )
    origin = replace(report.origin, name=report.origin.kind)
    return replace(report, splits=splits, origin=origin, **changes)


def of_person(report: CapacityReport, user: str) -> CapacityReport:
    """What a report says of one user, and nothing of others."""
    shares = tuple(one for one in report.splits.get(Dimension.USER, ()) if one.key == user)
    mine = tuple(one for one in report.opportunities if user in one.users)
    parts: dict[str, Any] = dict.fromkeys(_OF_ALL, ()) | {
        field: tuple(row for row in getattr(report, field) if row.user == user)
        for field in _PERSONAL
    }
    return replace(
        report,
        person=user,
        title=f"{report.title}: {user}",
        hours=shares[0].hours if shares else GpuHours(),
        origin=replace(report.origin, jobs=sum(one.jobs for one in shares), set_aside=()),
        capacity=None,
        splits={Dimension.USER: shares},
        opportunities=tuple(replace(one, users=(user,)) for one in mine),
        notes=(_SHARED,) if any(len(one.users) > 1 for one in mine) else (),
        whatif=None,
        **parts,
    )
