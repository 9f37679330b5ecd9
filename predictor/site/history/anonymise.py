"""Names replaced by keyed hashes on their way in, so that no clear one is ever stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection, delete, insert, select

from ...errors import HistoryError
from .hashing import hasher, site_key_of, without_clear_names
from .run import Run
from .settings import HistorySettings
from .tables import META, RUNS, Where

MODE = "anonymise"
KEY_ID = "site_key"
# Ids that schedulers give, which say nothing of anybody; a Kubernetes name may.
_GIVEN_ID = re.compile(r"\d+([_+.]\d+)*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class Anonymiser:
    """Makes what is stored from what is known; ``mark`` is what the history remembers of it."""

    def __init__(self, settings: HistorySettings) -> None:
        self.mode = settings.anonymise
        key = None if settings.site_key is None else site_key_of(settings.site_key)
        self._hash = None if key is None or self.mode == "none" else hasher(key)

    @property
    def mark(self) -> dict[str, str]:
        """How names are kept, and by which key, without telling the key."""
        if self._hash is None:
            return {MODE: "none"}
        return {MODE: self.mode, KEY_ID: self._hash("key", "id")}

    def __call__(self, run: Run) -> Run:
        """The run as it may be stored."""
        hashed = self._hash
        if hashed is None:
            return run
        names = self.mode == "users-and-names"
        job = without_clear_names(run.ended, hashed, job_name=names)
        job = replace(job, stated="", decision="", submit_line="")
        if names:
            job = replace(job, job_id=self._job_id(job.job_id))
        return replace(run, ended=job)

    def where(self, where: Where) -> Where:
        """The same condition on what is stored; names may be given clear or hashed."""
        hashed = self._hash
        if hashed is None:
            return where
        where = replace(
            where,
            users=tuple(hashed("user", name) for name in where.users),
            accounts=tuple(hashed("account", name) for name in where.accounts),
        )
        if self.mode != "users-and-names":
            return where
        return replace(
            where,
            names=tuple(hashed("name", name) for name in where.names),
            job_ids=tuple(map(self._job_id, where.job_ids)),
        )

    def _job_id(self, job_id: str) -> str:
        assert self._hash is not None
        return job_id if _GIVEN_ID.fullmatch(job_id) else self._hash("job", job_id)


def check_names(connection: Connection, anonymiser: Anonymiser) -> None:
    """Keep clear and hashed names, or hashes of two keys, out of one history.

    An empty history takes the way it is given; raises HistoryError where it has another.
    """
    stored = _stored_mark(connection)
    mark = anonymiser.mark
    if stored == mark:
        return
    if connection.execute(select(RUNS.c.scheduler).limit(1)).first() is not None:
        raise HistoryError(
            f"invalid anonymise={mark[MODE]!r}; the runs of this history were kept with"
            f" {_told(stored)}, and these would be with {_told(mark)}; expected the same"
            " settings and key, or another history"
        )
    connection.execute(delete(META))
    connection.execute(insert(META), [{"name": n, "value": value} for n, value in mark.items()])


def names_kept(connection: Connection) -> str:
    """How the names of a history are kept, and by which key."""
    return _told(_stored_mark(connection))


def _stored_mark(connection: Connection) -> dict[str, str]:
    return {MODE: "none", **{row.name: row.value for row in connection.execute(select(META))}}


def _told(mark: Mapping[str, str]) -> str:
    return mark[MODE] + (f" by {mark[KEY_ID]}" if KEY_ID in mark else "")
