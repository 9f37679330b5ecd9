"""The runs as a table of Polars, read in blocks of columns while it is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source
from sqlalchemy import BigInteger, Double, Engine, select
from sqlalchemy.types import TypeEngine

from ...errors import HistoryError
from ...trusted_files import DRAFT_PREFIX
from .engine import streaming
from .tables import COLUMNS, RUNS, Where, conditions

Sink = Callable[[pl.LazyFrame, Path], object]

_SINKS: Mapping[str, Sink] = {
    ".parquet": pl.LazyFrame.sink_parquet,
    ".csv": pl.LazyFrame.sink_csv,
    ".ndjson": pl.LazyFrame.sink_ndjson,
}


def export(frame: pl.LazyFrame, file: Path) -> None:
    """Write a frame in the form its suffix names, whole or not at all.

    Raises HistoryError for another suffix, and where the file cannot be written.
    """
    sink = _SINKS.get(file.suffix)
    if sink is None:
        raise HistoryError(f"invalid file={str(file)!r}; expected {', '.join(_SINKS)}")
    draft = file.with_name(DRAFT_PREFIX + file.name)
    try:
        sink(frame, draft)
        draft.replace(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise HistoryError(f"{file} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


BLOCK_ROWS = 20_000


def lazy_frame(engine: Engine, where: Where, columns: Sequence[str] | None) -> pl.LazyFrame:
    """The runs, in no order; raises HistoryError for an unknown column.

    Only the columns that a query needs are read from the database.
    """
    names = tuple(COLUMNS if columns is None else columns)
    if unknown := [name for name in names if name not in COLUMNS]:
        raise HistoryError(f"invalid columns={unknown}; expected {', '.join(COLUMNS)}")

    def blocks(
        wanted: list[str] | None, condition: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        for block in _blocks(engine, where, names if wanted is None else wanted, n_rows):
            yield block if condition is None else block.filter(condition)

    schema = {name: _dtype(RUNS.columns[name].type) for name in names}
    return register_io_source(blocks, schema=schema)


def _blocks(
    engine: Engine, where: Where, names: Sequence[str], n_rows: int | None
) -> Iterator[pl.DataFrame]:
    columns = [RUNS.columns[name] for name in names]
    schema = {column.name: _dtype(column.type) for column in columns}
    query = select(*columns).where(*conditions(where)).limit(n_rows)
    with streaming(engine, query, BLOCK_ROWS) as found:
        for rows in found.partitions():
            values = zip(schema.items(), zip(*rows, strict=True), strict=True)
            yield pl.DataFrame([pl.Series(name, cells, kind) for (name, kind), cells in values])


def _dtype(kind: TypeEngine[object]) -> type[pl.DataType]:
    if isinstance(kind, BigInteger):
        return pl.Int64
    return pl.Float64 if isinstance(kind, Double) else pl.String
