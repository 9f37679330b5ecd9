"""Rows into the table of runs: staged, then inserted or merged into what is there.

What a later record says goes before what is there, and what it does not say stays: it never
erases. Equal rows are not written at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    case,
    delete,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from .engine import POSTGRES
from .rows import Row
from .tables import COLUMNS, KEY, RUNS

STAGE = Table(
    "runs_to_add",
    MetaData(),
    *(Column(column.name, column.type) for column in RUNS.columns),
    prefixes=["TEMPORARY"],
)
_ALWAYS = ("state", "end_s")
_NEVER = (*KEY, "submit_s")
_COUNTS = ("gpus", "nodes")  # 0 where they are not known
_OF_ASKED = ("model", "precision", "gpu")
_LAST = "ingested_s"
_MERGED = tuple(name for name in COLUMNS if name not in (*_NEVER, _LAST))

Insert = postgresql.Insert | sqlite.Insert
Columns = dict[str, ColumnElement[object]]


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the runs given: not there before, written anew, or as they were."""

    new: int = 0
    changed: int = 0
    same: int = 0

    def __add__(self, other: Merged) -> Merged:
        return Merged(self.new + other.new, self.changed + other.changed, self.same + other.same)


def merge(connection: Connection, rows: Sequence[Row]) -> Merged:
    """Add rows in the transaction of a connection."""
    connection.execute(CreateTable(STAGE, if_not_exists=True))
    return sum((_merge_distinct(connection, wave) for wave in _waves(rows)), start=Merged())


def _waves(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """All rows in order, no job twice in one wave."""
    while rows:
        first: dict[Row, Row] = {}
        later = [row for row in rows if first.setdefault(row[: len(KEY)], row) is not row]
        yield rows if not later else list(first.values())
        rows = later


def _merge_distinct(connection: Connection, rows: Sequence[Row]) -> Merged:
    _empty_stage(connection)
    _stage(connection, rows)
    new = _written(connection, _insert_new(connection.dialect.name))
    changed = 0
    if new < len(rows):
        changed = _written(connection, _insert_or_merge(connection.dialect.name))
    return Merged(new, changed, len(rows) - new - changed)


def _written(connection: Connection, insert: Insert) -> int:
    done = connection.execute(insert, execution_options={"preserve_rowcount": True})
    assert done.rowcount >= 0
    return done.rowcount


def _empty_stage(connection: Connection) -> None:
    """PostgreSQL never gives back what is deleted from a temporary table, only truncated."""
    if connection.dialect.name == POSTGRES:
        connection.exec_driver_sql(f"TRUNCATE {STAGE.name}")
    else:
        connection.execute(delete(STAGE))


def _stage(connection: Connection, rows: Iterable[Row]) -> None:
    """The rows by the quickest way of each driver."""
    if connection.dialect.name == POSTGRES:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy(f"COPY {STAGE.name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        places = ",".join("?" * len(COLUMNS))
        connection.exec_driver_sql(f"INSERT INTO {STAGE.name} VALUES ({places})", list(rows))


def upsert(connection: Connection, table: Table, row: dict[str, object]) -> None:
    """Put one row in the place of that with its key."""
    key = [column.name for column in table.primary_key]
    rest = {name: value for name, value in row.items() if name not in key}
    insert = _insert_into(table, connection.dialect.name).values(row)
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=rest))


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
        where=or_(*(value.is_distinct_from(known[name]) for name, value in merged.items())),
    )


def _insert(dialect: str) -> Insert:
    """``WHERE true`` tells SQLite the ON CONFLICT from the ON of a join."""
    return _insert_into(RUNS, dialect).from_select(COLUMNS, select(STAGE).where(true()))


def _insert_into(table: Table, dialect: str) -> Insert:
    return postgresql.insert(table) if dialect == POSTGRES else sqlite.insert(table)


def _merged(name: str, said: Columns, known: Columns) -> ColumnElement[object]:
    new, old = said[name], known[name]
    if name in _ALWAYS:
        return new
    if name in _OF_ASKED:
        return case((said["asked"] != "", new), else_=old)
    if name in _COUNTS:
        return case((new > 0, new), else_=old)
    if RUNS.columns[name].nullable:
        return func.coalesce(new, old)
    return case((new != "", new), else_=old)
