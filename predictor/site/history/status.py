"""What a history holds, in a few figures."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from .anonymise import names_kept
from .engine import POSTGRES
from .schema import version_of
from .tables import CURSORS, RUNS

_POSTGRES_BYTES = select(func.pg_total_relation_size(RUNS.name))
_SQLITE_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A history; times are Unix seconds, None where it holds no run.

    ``names`` is how names are kept (``none``: as they are), ``cursors`` how far each ingest got.
    """

    url: str
    schema: str | None
    names: str
    keep_days: float | None
    runs: int
    predicted: int
    reported: int
    first_end_s: float | None
    last_end_s: float | None
    bytes: int
    cursors: dict[str, float]


def status_of(connection: Connection, *, url: str, keep_days: float | None) -> Status:
    """The figures of the history behind a connection."""
    figures = connection.execute(
        select(
            func.count(),
            func.count(RUNS.c.predicted_median_s),
            func.count(RUNS.c.reported_step_s),
            func.min(RUNS.c.end_s),
            func.max(RUNS.c.end_s),
        )
    ).one()
    runs, predicted, reported, first_end_s, last_end_s = figures
    return Status(
        url=url,
        schema=version_of(connection),
        names=names_kept(connection),
        keep_days=keep_days,
        runs=runs,
        predicted=predicted,
        reported=reported,
        first_end_s=first_end_s,
        last_end_s=last_end_s,
        bytes=_bytes(connection),
        cursors=cursors_of(connection),
    )


def cursors_of(connection: Connection) -> dict[str, float]:
    """How far each ingest got, in Unix seconds by its name."""
    rows = connection.execute(select(CURSORS).order_by(CURSORS.c.name))
    return {row.name: row.at_s for row in rows}


def _bytes(connection: Connection) -> int:
    if connection.dialect.name == POSTGRES:
        return int(connection.execute(_POSTGRES_BYTES).scalar_one())
    return int(connection.exec_driver_sql(_SQLITE_BYTES).scalar_one())
