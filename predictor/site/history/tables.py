"""The tables of a history: one flat row a job, how far each ingest got, and how it is kept.

``migrations`` makes these tables; a change here needs a revision there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Double, Index, MetaData, Table, Text, or_

from .run import ENDED_ITS_STEPS, JobState

METADATA = MetaData()
# Compared by code points everywhere, as Python does; PostgreSQL follows a locale by default.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")

KEY = ("scheduler", "cluster", "job_id", "submit_second")


def _columns(kind: Any, names: str, *, nullable: bool = True) -> list[Column[Any]]:
    """Columns of one kind; a text is empty where it is missing, and NULL where it may be."""
    return [Column(name, kind, nullable=nullable) for name in names.split()]


RUNS = Table(
    "runs",
    METADATA,
    Column("scheduler", TEXT, primary_key=True),
    Column("cluster", TEXT, primary_key=True),
    Column("job_id", TEXT, primary_key=True),
    Column("submit_second", BigInteger, primary_key=True, autoincrement=False),
    *_columns(TEXT, "name user account partition qos state", nullable=False),
    Column("submit_s", Double, nullable=False),
    Column("start_s", Double),
    Column("end_s", Double, nullable=False),
    Column("limit_s", Double),
    Column("gpus", BigInteger, nullable=False),
    Column("gpu_type", TEXT),
    Column("nodes", BigInteger, nullable=False),
    # The names of nodes are a JSON array, empty without nodes.
    *_columns(TEXT, "node_names stated decision submit_line constraint", nullable=False),
    Column("energy_j", Double),
    *_columns(BigInteger, "cpus memory_bytes"),
    *_columns(TEXT, "script directory"),
    *_columns(TEXT, "asked origin", nullable=False),
    *_columns(TEXT, "model precision gpu"),  # the three of ``asked``
    Column("limit_by", TEXT),
    *_columns(Double, "predicted_step_s predicted_median_s predicted_upper_s predicted_level"),
    Column("predicted_gpu", TEXT),
    Column("predicted_gpus", BigInteger),
    *_columns(TEXT, "predicted_version predicted_tier"),
    *_columns(Double, "predicted_limit_s reported_step_s"),
    Column("reported_steps", BigInteger),
    Column("reported_step_s_spread", Double),
    Column("reported_total_steps", BigInteger),
    *_columns(Double, "reported_startup_s reported_paused_s reported_loader_bound"),
    Column("printed_unit", TEXT),
    *_columns(Double, "printed_at printed_total printed_seconds_per_unit"),
    Column("ingested_s", Double, nullable=False),  # when the row was last written
    Index("runs_by_end", "end_s"),
)
COLUMNS = tuple(column.name for column in RUNS.columns)

CURSORS = Table(
    "cursors",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("at_s", Double, nullable=False),
)

META = Table(
    "meta", METADATA, Column("name", TEXT, primary_key=True), Column("value", TEXT, nullable=False)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Runs that end in [since_s, until_s) and are of one of the names given; empty for all.

    ``models`` are what was asked for, ``gpu_types`` the scheduler's names of what was allocated.
    With ``only_reported`` the run has told its own step time; with ``only_telling`` it started,
    names its network, and has told its steps or may have ended them.
    """

    since_s: float | None = None
    until_s: float | None = None
    schedulers: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    states: tuple[JobState, ...] = ()
    only_reported: bool = False
    only_telling: bool = False


EVERY_RUN = Where()


def conditions(where: Where) -> Iterator[ColumnElement[bool]]:
    """The same as SQL; a field with names is the plural of its column."""
    if where.since_s is not None:
        yield RUNS.c.end_s >= where.since_s
    if where.until_s is not None:
        yield RUNS.c.end_s < where.until_s
    if where.only_reported:
        yield RUNS.c.reported_step_s.is_not(None)
    if where.only_telling:
        yield RUNS.c.start_s.is_not(None)
        yield RUNS.c.model.is_not(None)
        yield or_(RUNS.c.reported_step_s.is_not(None), RUNS.c.state.in_(ENDED_ITS_STEPS))
    for field in fields(where):
        names = getattr(where, field.name)
        if names and isinstance(names, tuple):
            yield RUNS.c[field.name.removesuffix("s")].in_([str(name) for name in names])
