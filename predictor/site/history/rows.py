"""A run as a row of the table ``runs``, a row as a run, and rows into the table.

Rows are staged, then inserted or merged into what is there: what a later record says goes before
it, and what it does not say stays. Equal rows are not written at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import attrgetter, itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from ...errors import HistoryError
from .engine import POSTGRES
from .run import EndedJob, JobState, LimitBy, Predicted, PrintedProgress, Reported, Run, asked_value
from .tables import COLUMNS, KEY, RUNS

Row = tuple[Any, ...]

MOST = 2.0**62  # what any number stays below, so that both databases hold it
# Fields that are columns of the same name, and those whose column has a prefix.
_JOB = tuple(field.name for field in fields(EndedJob))
_PARTS: Any = {"predicted": Predicted, "reported": Reported, "printed": PrintedProgress}
_COLUMNS_OF = {
    part: {field.name: f"{part}_{field.name}" for field in fields(kind)}
    for part, kind in _PARTS.items()
}
_OR_NULL = ("gpu_type", "script", "directory")  # NULL where they are empty
_ASKED = ("model", "precision", "gpu")
_NOTHING: Mapping[str, Any] = dict.fromkeys(COLUMNS)
_job_of = attrgetter(*_JOB)
_in_order = itemgetter(*COLUMNS)
# The second of submission in the key follows from ``submit_s``.
_NUMBERS = tuple(
    COLUMNS.index(column.name)
    for column in RUNS.columns
    if isinstance(column.type, sa.BigInteger | sa.Double) and column.name not in KEY
)
_numbers_of = itemgetter(*_NUMBERS)
_texts_of = itemgetter(
    *(COLUMNS.index(c.name) for c in RUNS.columns if isinstance(c.type, sa.Text))
)


def row_of(run: Run, ingested_s: float) -> Row:
    """The values of COLUMNS; raises HistoryError for a number that is none, such as NaN."""
    job = run.ended
    values = {**_NOTHING, **dict(zip(_JOB, _job_of(job), strict=True))}
    try:
        values["submit_second"] = int(job.submit_s)
    except (ValueError, OverflowError):
        raise _not_possible(job, "submit_s", job.submit_s) from None
    values["state"] = job.state.value
    values["node_names"] = _list_text(job.node_names)
    for name in _OR_NULL:
        values[name] = values[name] or None
    values |= {"asked": run.asked, "origin": run.origin, "ingested_s": ingested_s}
    values |= zip(_ASKED, _asked(run.asked), strict=True)
    if run.limit_by is not None:
        values["limit_by"] = run.limit_by.value
    for part, columns in _COLUMNS_OF.items():
        told = getattr(run, part)
        if told is not None:
            values |= {column: getattr(told, name) for name, column in columns.items()}
    row: Row = _in_order(values)
    _check_numbers(job, row)
    # PostgreSQL takes no NULs, and no halves of characters.
    texts = "".join(filter(None, _texts_of(row)))
    if texts.isascii() and "\0" not in texts:
        return row
    return tuple(
        value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
        if isinstance(value, str)
        else value
        for value in row
    )


def run_of(row: Sequence[Any]) -> Run:
    """The run of the values of COLUMNS."""
    values = dict(zip(COLUMNS, row, strict=True))
    job = {name: values[name] for name in _JOB}
    job["state"] = JobState(values["state"])
    job["node_names"] = _list_of(values["node_names"])
    job |= {name: values[name] or "" for name in ("script", "directory")}
    parts = {}
    for part, columns in _COLUMNS_OF.items():
        told = {name: values[column] for name, column in columns.items()}
        known = any(value is not None for value in told.values())
        parts[part] = _PARTS[part](**told) if known else None
    return Run(
        ended=EndedJob(**job),
        asked=values["asked"],
        origin=values["origin"],
        limit_by=None if values["limit_by"] is None else LimitBy(values["limit_by"]),
        **parts,
    )


@lru_cache(2**12)
def _asked(asked: str) -> Row:
    return tuple(asked_value(asked, name) for name in _ASKED)


@lru_cache(2**12)
def _list_text(names: tuple[str, ...]) -> str:
    return json.dumps(names) if names else ""


@lru_cache(2**12)
def _list_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def _check_numbers(job: EndedJob, row: Row) -> None:
    """NaN, an infinity or a huge number shows in the sum of all, which is quick to take."""
    try:
        if -MOST < sum(filter(None, _numbers_of(row))) < MOST:
            return
    except OverflowError:
        pass
    for index in _NUMBERS:
        value = row[index]
        if value is not None and not -MOST < value < MOST:
            raise _not_possible(job, COLUMNS[index], value)


def _not_possible(job: EndedJob, field: str, value: object) -> HistoryError:
    return HistoryError(
        f"invalid {field}={value!r} of {job.scheduler} job {job.job_id!r}; expected a number"
        " between -2**62 and 2**62"
    )


STAGE = sa.Table(
    "runs_to_add",
    sa.MetaData(),
    *(sa.Column(column.name, column.type) for column in RUNS.columns),
    prefixes=["TEMPORARY"],
)
_ALWAYS = ("state", "end_s")
_COUNTS = ("gpus", "nodes")  # 0 where they are not known
_LAST = "ingested_s"
_MERGED = tuple(name for name in COLUMNS if name not in (*KEY, "submit_s", _LAST))

Insert = postgresql.Insert | sqlite.Insert
Columns = dict[str, sa.ColumnElement[object]]


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the runs given: not there before, written anew, or as they were."""

    new: int = 0
    changed: int = 0
    same: int = 0

    def __add__(self, other: Merged) -> Merged:
        return Merged(self.new + other.new, self.changed + other.changed, self.same + other.same)


def merge(connection: sa.Connection, rows: Sequence[Row]) -> Merged:
    """Add rows in the transaction of a connection."""
    connection.execute(CreateTable(STAGE, if_not_exists=True))
    merged, dialect = Merged(), connection.dialect.name
    for wave in _waves(rows):
        _stage(connection, wave)
        new, changed = _written(connection, _insert_new(dialect)), 0
        if new < len(wave):
            changed = _written(connection, _insert_or_merge(dialect))
        merged += Merged(new, changed, len(wave) - new - changed)
    return merged


def upsert(connection: sa.Connection, table: sa.Table, row: dict[str, object]) -> None:
    """Put one row in the place of that with its key."""
    key = [column.name for column in table.primary_key]
    rest = {name: value for name, value in row.items() if name not in key}
    insert = _insert_into(table, connection.dialect.name).values(row)
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=rest))


def _waves(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """All rows in order, no job twice in one wave."""
    while rows:
        first: dict[Row, Row] = {}
        later = [row for row in rows if first.setdefault(row[: len(KEY)], row) is not row]
        yield rows if not later else list(first.values())
        rows = later


def _stage(connection: sa.Connection, rows: Sequence[Row]) -> None:
    """The rows in the place of those before, by the quickest way of each driver."""
    if connection.dialect.name == POSTGRES:
        # What is deleted from a temporary table is never given back, only what is truncated.
        connection.exec_driver_sql(f"TRUNCATE {STAGE.name}")
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy(f"COPY {STAGE.name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        connection.execute(sa.delete(STAGE))
        places = ",".join("?" * len(COLUMNS))
        connection.exec_driver_sql(f"INSERT INTO {STAGE.name} VALUES ({places})", list(rows))


def _written(connection: sa.Connection, insert: Insert) -> int:
    done = connection.execute(insert, execution_options={"preserve_rowcount": True})
    assert done.rowcount >= 0
    return done.rowcount


@cache
def _insert_new(dialect: str) -> Insert:
    return _insert(dialect).on_conflict_do_nothing(index_elements=KEY)


@cache
def _insert_or_merge(dialect: str) -> Insert:
    insert = _insert(dialect)
    said: Columns = dict(insert.excluded.items())
    known: Columns = dict(RUNS.columns.items())
    merged = {name: _merged(name, said, known) for name in _MERGED}
    return insert.on_conflict_do_update(
        index_elements=KEY,
        set_={**merged, _LAST: said[_LAST]},
        where=sa.or_(*(value.is_distinct_from(known[name]) for name, value in merged.items())),
    )


def _insert(dialect: str) -> Insert:
    """``WHERE true`` tells SQLite the ON CONFLICT from the ON of a join."""
    return _insert_into(RUNS, dialect).from_select(COLUMNS, sa.select(STAGE).where(sa.true()))


def _insert_into(table: sa.Table, dialect: str) -> Insert:
    return postgresql.insert(table) if dialect == POSTGRES else sqlite.insert(table)


def _merged(name: str, said: Columns, known: Columns) -> sa.ColumnElement[object]:
    new, old = said[name], known[name]
    if name in _ALWAYS:
        return new
    if name in _ASKED:
        return sa.case((said["asked"] != "", new), else_=old)
    if name in _COUNTS:
        return sa.case((new > 0, new), else_=old)
    if RUNS.columns[name].nullable:
        return sa.func.coalesce(new, old)
    return sa.case((new != "", new), else_=old)
