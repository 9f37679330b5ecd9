"""Which runs of a history are meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import ColumnElement

from ..ended_job import JobState
from .tables import RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Runs that end in [since_s, until_s) and are of one of the names given; empty for all.

    ``models`` and ``precisions`` are what was asked for, ``gpu_types`` the scheduler's names of
    what was allocated. With ``only_reported`` the run has told its own step time.
    """

    since_s: float | None = None
    until_s: float | None = None
    schedulers: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    states: tuple[JobState, ...] = ()
    only_reported: bool = False


EVERY_RUN = Where()
_COLUMN_OF = {
    "schedulers": "scheduler",
    "clusters": "cluster",
    "job_ids": "job_id",
    "users": "user",
    "accounts": "account",
    "partitions": "partition",
    "names": "name",
    "models": "model",
    "precisions": "precision",
    "gpu_types": "gpu_type",
    "states": "state",
}


def conditions(where: Where) -> Iterator[ColumnElement[bool]]:
    """The same as SQL."""
    if where.since_s is not None:
        yield RUNS.c.end_s >= where.since_s
    if where.until_s is not None:
        yield RUNS.c.end_s < where.until_s
    if where.only_reported:
        yield RUNS.c.reported_step_s.is_not(None)
    for field, column in _COLUMN_OF.items():
        if names := getattr(where, field):
            yield RUNS.c[column].in_([str(name) for name in names])
