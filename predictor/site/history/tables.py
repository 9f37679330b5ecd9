"""The tables of a history: one flat row a job, how far each ingest got, and how it is kept.

``migrations`` makes these tables; a change here needs a revision there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, ColumnElement, Double, Index, MetaData, Table, Text

from ..ended_job import JobState

METADATA = MetaData()
# Compared by code points everywhere, as Python does; PostgreSQL follows a locale by default.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")

KEY = ("scheduler", "cluster", "job_id", "submit_second")


def _text(name: str) -> Column[str]:
    """A text that is empty where it is missing."""
    return Column(name, TEXT, nullable=False)


def _word(name: str) -> Column[str]:
    """A text that is NULL where it is missing."""
    return Column(name, TEXT)


def _number(name: str, *, nullable: bool = True) -> Column[float]:
    return Column(name, Double, nullable=nullable)


def _whole(name: str, *, nullable: bool = True) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


RUNS = Table(
    "runs",
    METADATA,
    Column("scheduler", TEXT, primary_key=True),
    Column("cluster", TEXT, primary_key=True),
    Column("job_id", TEXT, primary_key=True),
    Column("submit_second", BigInteger, primary_key=True, autoincrement=False),
    _text("name"),
    _text("user"),
    _text("account"),
    _text("partition"),
    _text("qos"),
    _text("state"),
    _number("submit_s", nullable=False),
    _number("start_s"),
    _number("end_s", nullable=False),
    _number("limit_s"),
    _whole("gpus", nullable=False),
    _word("gpu_type"),
    _whole("nodes", nullable=False),
    _text("node_names"),  # a JSON array, empty without nodes
    _text("stated"),
    _text("decision"),
    _text("submit_line"),
    _text("constraint"),
    _number("energy_j"),
    _whole("cpus"),
    _whole("memory_bytes"),
    _word("script"),
    _word("directory"),
    _text("asked"),
    _text("origin"),
    _word("model"),  # the three of ``asked``
    _word("precision"),
    _word("gpu"),
    _word("limit_by"),
    _number("predicted_step_s"),
    _number("predicted_median_s"),
    _number("predicted_upper_s"),
    _number("predicted_level"),
    _word("predicted_gpu"),
    _whole("predicted_gpus"),
    _word("predicted_version"),
    _word("predicted_tier"),
    _number("predicted_limit_s"),
    _number("reported_step_s"),
    _whole("reported_steps"),
    _number("reported_step_s_spread"),
    _whole("reported_total_steps"),
    _number("reported_startup_s"),
    _number("reported_paused_s"),
    _number("reported_loader_bound"),
    _word("printed_unit"),
    _number("printed_at"),
    _number("printed_total"),
    _number("printed_seconds_per_unit"),
    _number("ingested_s", nullable=False),  # when the row was last written
    Index("runs_by_end", "end_s"),
)
COLUMNS = tuple(column.name for column in RUNS.columns)

CURSORS = Table(
    "cursors", METADATA, Column("name", TEXT, primary_key=True), _number("at_s", nullable=False)
)

META = Table("meta", METADATA, Column("name", TEXT, primary_key=True), _text("value"))


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
