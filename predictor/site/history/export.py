"""The runs of a history as one file for other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from ...errors import HistoryError
from ...trusted_files import DRAFT_PREFIX

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
