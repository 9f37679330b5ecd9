"""The queue of a scheduler as rows beside those of a history."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import polars as pl

from ..history.run import asked_value
from .jobs import COLUMNS, RUNNING
from .live import Live, LiveJob
from .source import JobSource, empty
from .waiting import HELD, PRIORITY

PENDING = "pending"
NO_PAST = empty()
_TOLD = tuple(field.name for field in fields(LiveJob) if field.name in (*COLUMNS, PRIORITY, HELD))


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
    schema = dict(NO_PAST.collect_schema()) | extra
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
