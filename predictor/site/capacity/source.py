"""Where a report's jobs come from: a history, or a file of the same columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import polars as pl

from ...errors import HistoryError
from ..history.run import LimitBy, asked_value
from ..history.store import History
from ..history.tables import Where
from ..replay import Pool
from .jobs import COLUMNS, HELD, PRIORITY, RUNNING
from .live import Live, LiveJob

# The cluster of every job of the sample that ships.
SAMPLE_CLUSTER = "generated-sample"
# What a file has to tell of every job; the other columns may be missing.
NEEDED = ("job_id", "submit_s", "start_s", "end_s", "gpus")
_WHOLE = ("gpus", "nodes")
_NUMBERS = (
    "submit_s",
    "start_s",
    "end_s",
    "limit_s",
    "predicted_step_s",
    "predicted_median_s",
    "predicted_upper_s",
    "predicted_level",
    "reported_step_s",
)
PENDING = "pending"
_TOLD = tuple(one.name for one in fields(LiveJob) if one.name in (*COLUMNS, PRIORITY, HELD))
_DEFAULTS = {"state": "completed", "nodes": 1, "asked": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """Jobs as a lazy table with the columns of ``jobs.COLUMNS``, and what to call it.

    ``pools`` are the GPUs that a scheduler has, none where none was asked; ``live`` is its queue.
    """

    frame: pl.LazyFrame
    kind: str
    name: str
    pools: tuple[Pool, ...] = ()
    live: Live | None = None


def of_history(
    store: History, *, since_s: float | None = None, scheduler: str | None = None
) -> JobSource:
    """The jobs of a history that ended since then, of one scheduler if named."""
    schedulers = () if scheduler is None else (scheduler,)
    frame = store.frame(Where(since_s=since_s, schedulers=schedulers), COLUMNS)
    return JobSource(frame=frame, kind=scheduler or "history", name=store.url)


def of_file(path: Path) -> JobSource:
    """The jobs of a CSV (also .csv.gz) or Parquet file with the columns of a history.

    Raises HistoryError where it cannot be read, or a column that is needed is missing.
    """
    try:
        frame = _scan(path)
        there = frame.collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error
    if missing := [name for name in NEEDED if name not in there]:
        raise HistoryError(f"{path}: no column {', '.join(missing)}; needed: {', '.join(NEEDED)}")
    columns = [_column(name, name in there) for name in COLUMNS]
    return JobSource(frame=frame.select(columns), kind="file", name=path.name)


def empty() -> pl.LazyFrame:
    """A table of no jobs."""
    return pl.LazyFrame(schema={name: _dtype(name) for name in COLUMNS})


def is_sample(frame: pl.LazyFrame) -> bool:
    """Whether the jobs are generated ones."""
    clusters = frame.select("cluster").unique().collect()["cluster"]
    return SAMPLE_CLUSTER in clusters.to_list()


def _scan(path: Path) -> pl.LazyFrame:
    ways: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
        ".csv": _scan_csv,
        ".gz": _scan_csv,
        ".parquet": pl.scan_parquet,
    }
    way = ways.get(path.suffix)
    if way is None:
        raise HistoryError(f"{path}: expected a file that ends in {', '.join(ways)}")
    if not path.is_file():
        raise HistoryError(f"{path} cannot be read: there is no such file")
    return way(path)


def _scan_csv(path: Path) -> pl.LazyFrame:
    """Everything as text, which ``_column`` turns into numbers."""
    return pl.scan_csv(path, infer_schema=False)


def _column(name: str, there: bool) -> pl.Expr:
    dtype = _dtype(name)
    found = pl.col(name).cast(dtype) if there else pl.lit(None, dtype)
    if name == "limit_by":
        known = found.is_in([by.value for by in LimitBy])
        found = pl.when(known).then(found)
    default = 0 if name == "gpus" else _DEFAULTS.get(name)
    return (found if default is None else found.fill_null(default)).alias(name)


def _dtype(name: str) -> type[pl.DataType]:
    return pl.Int64 if name in _WHOLE else pl.Float64 if name in _NUMBERS else pl.String


def with_live(source: JobSource, live: Live) -> JobSource:
    """The jobs of a source that had ended when the queue was read, and those of the queue.

    The GPUs of the scheduler come with them, and what its jobs wait for.
    """
    past = source.frame.filter(pl.col("end_s") < live.at_s)
    frame = pl.concat([past, frame_of(live)], how="diagonal")
    return replace(source, frame=frame, pools=live.pools, live=live)


def frame_of(live: Live) -> pl.LazyFrame:
    """Jobs of a queue with the columns of a history, and their priority."""
    extra = {PRIORITY: pl.Int64, HELD: pl.Boolean}
    schema = dict(empty().collect_schema()) | extra
    rows = [_row(job, live) for job in live.jobs if job.gpus]
    return pl.DataFrame(rows, schema=schema).lazy()


def _row(job: LiveJob, live: Live) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in _TOLD}
    return told | {
        "scheduler": live.scheduler,
        "cluster": live.cluster,
        "state": PENDING if job.start_s is None else RUNNING,
        "model": asked_value(job.asked, "model"),
        "precision": asked_value(job.asked, "precision"),
    }
