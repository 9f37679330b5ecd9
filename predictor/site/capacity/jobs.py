"""The jobs of a report: of a history or a file, then those of a period, cleaned and clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import polars as pl

from profiles.gpus import gpus, known_name

from ...errors import HistoryError, reason_of
from ..history.accounting_table import AccountingTable
from ..history.cells import moment_s
from ..history.ingest import LeftOut, Period, Unread
from ..history.run import EndedJob, JobState, LimitBy, Run, asked_value
from ..history.store import History
from ..history.tables import Where
from ..replay import Pool
from ..similar.memory import SiteMemory
from ..similar.request import JobRequest
from .live import Live, LiveJob
from .report_data import SetAside

WHOLE = ("gpus", "nodes")
NUMBERS = (
    *("submit_s", "start_s", "end_s", "limit_s"),
    *("predicted_step_s", "predicted_median_s", "predicted_upper_s", "predicted_level"),
    "reported_step_s",
)
TEXTS = (
    *("scheduler", "cluster", "job_id", "name", "user", "account", "partition", "state"),
    *("gpu_type", "asked", "model", "precision", "limit_by"),
)
COLUMNS = (*TEXTS, *WHOLE, *NUMBERS)
UNKNOWN = "unknown"
STEPS = r"(?:^|\s)steps=(\d+)"
RUNNING = "running"  # the state of a job that had not ended when it was read
# How a state of a job is counted; a node that failed lost the work as a failed job does.
OUTCOMES = {
    **{name: name for name in ("completed", "cancelled", RUNNING)},
    **dict.fromkeys(("failed", "node_fail", "out_of_memory"), "failed"),
    **dict.fromkeys(("timeout", "deadline"), "timed_out"),
    **dict.fromkeys(("preempted", "requeued"), "preempted"),
}
# Why a job counts nowhere, in the order in which reasons are looked for.
_TIMES = ("submit_s", "start_s", "end_s")
# Whether a time of a job could not be read.
UNREAD = pl.any_horizontal(pl.col(name).is_nan().fill_null(value=False) for name in _TIMES)
_ASIDE = (
    ("a time of it cannot be read", UNREAD),
    ("it asked for no GPU", pl.col("gpus") < 1),
    ("it never started", pl.col("start_s").is_null()),
    ("it ends before it starts: a clock jumped", pl.col("end_s") < pl.col("start_s")),
    ("it starts before it was submitted: a clock jumped", pl.col("start_s") < pl.col("submit_s")),
)
# The cluster of every job of the sample that ships.
SAMPLE_CLUSTER = "generated-sample"
# What a file has to tell of every job; the other columns may be missing.
NEEDED = ("job_id", "submit_s", "start_s", "end_s", "gpus")
PENDING = "pending"
# Columns that make a run of a job, and those of its request and of its place in a queue.
_RUN_TEXTS = (*TEXTS[: TEXTS.index("state")], "gpu_type")
_RUN_NUMBERS = ("submit_s", "start_s", "end_s", "limit_s", "gpus")
_OF_REQUEST, _OF_JOB = (
    tuple(one.name for one in fields(kind) if one.name in COLUMNS) for kind in (JobRequest, LiveJob)
)
_DEFAULTS = {"nodes": 1, "asked": ""}
_LEAST_MS = 1e11  # a number from here on is no Unix time in seconds, which would be the year 5138
_NO_TIME = ("", "-", "n/a", "na", "nan", "none", "null", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """Jobs as a lazy table with the columns of ``jobs.COLUMNS``, and what to call it.

    ``pools`` are the GPUs that a scheduler has, none where none was asked; ``live`` is its queue.
    ``set_aside`` are records of a file that are no job with GPUs, or cannot be read. ``memory`` is
    what the site learned of the jobs of its queue, None where those of the table alone tell.
    """

    frame: pl.LazyFrame
    kind: str
    name: str
    pools: tuple[Pool, ...] = ()
    live: Live | None = None
    set_aside: tuple[SetAside, ...] = ()
    memory: SiteMemory | None = None


def of_history(store: History, *, scheduler: str | None = None) -> JobSource:
    """The jobs of a history, of one scheduler if named."""
    schedulers = () if scheduler is None else (scheduler,)
    frame = store.frame(Where(schedulers=schedulers), COLUMNS)
    return JobSource(frame=_one_type(frame), kind=scheduler or "history", name=store.url)


def of_file(path: Path) -> JobSource:
    """The jobs of a Parquet or CSV file (also .csv.gz).

    It has the columns of a history, or is an accounting table such as ``sacct -P`` writes. Raises
    HistoryError where it cannot be read, or a column that is needed is missing.
    """
    if path.suffix not in (".csv", ".gz", ".parquet"):
        raise HistoryError(f"{path}: expected a file that ends in .csv, .csv.gz or .parquet")
    if not path.is_file():
        raise HistoryError(f"{path} cannot be read: there is no such file")
    try:
        # Of CSV all as text, which ``_column`` turns into numbers.
        parquet = path.suffix == ".parquet"
        frame = pl.scan_parquet(path) if parquet else pl.scan_csv(path, infer_schema=False)
        there = frame.collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise HistoryError(f"{path} cannot be read: {reason_of(error)}") from error
    missing = [name for name in NEEDED if name not in there]
    if missing and not parquet:
        return _of_table(path)
    if missing:
        raise HistoryError(f"{path}: no column {', '.join(missing)}; needed: {', '.join(NEEDED)}")
    columns = [_column(name, name in there) for name in COLUMNS]
    return JobSource(frame=_one_type(frame.select(columns)), kind="file", name=path.name)


def _of_table(path: Path) -> JobSource:
    """An accounting table through the reader of ``history ingest``."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    aside: dict[str, list[str]] = {}
    for item in AccountingTable(path, "slurm", keep_unknown=True):
        if isinstance(item, Run):
            job = item.ended
            key = job.cluster, job.job_id, job.submit_s, job.start_s, job.end_s
            if key in rows:
                aside.setdefault("the same record again", []).append(job.job_id)
            rows[key] = {name: getattr(job, name, None) for name in COLUMNS} | {
                "state": job.state.value,
                "asked": job.stated if asked_value(job.stated, "model") else "",
                "model": asked_value(job.stated, "model"),
                "precision": asked_value(job.stated, "precision"),
            }
        elif isinstance(item, (LeftOut, Unread)):
            name = item.name if isinstance(item, Unread) else ""
            aside.setdefault(item.reason, []).append(name)
    frame = pl.DataFrame(list(rows.values()), schema=dict(empty().collect_schema())).lazy()
    told = (SetAside(reason=why, jobs=len(n), example=n[0]) for why, n in sorted(aside.items()))
    return JobSource(frame=frame, kind="file", name=path.name, set_aside=tuple(told))


def run_of(row: Mapping[str, Any]) -> Run:
    """A job as a run of the history, as far as its past tells of others."""
    told: dict[str, Any] = {name: row[name] or "" for name in _RUN_TEXTS}
    told |= {name: row[name] for name in _RUN_NUMBERS}
    known = row["state"] in {state.value for state in JobState}
    state = JobState(row["state"]) if known else JobState.UNKNOWN
    asked, by = row.get("asked") or row.get("config") or "", row["limit_by"]
    ended = EndedJob(state=state, **told)
    return Run(ended=ended, asked=asked, limit_by=None if by is None else LimitBy(by))


def empty() -> pl.LazyFrame:
    """A table of no jobs."""
    return pl.LazyFrame(schema={name: _dtype(name) for name in COLUMNS})


def is_sample(frame: pl.LazyFrame) -> bool:
    """Whether the jobs are generated ones."""
    clusters = frame.select("cluster").unique().collect()["cluster"]
    return SAMPLE_CLUSTER in clusters.to_list()


def _column(name: str, there: bool) -> pl.Expr:
    dtype = _dtype(name)
    found = pl.col(name).cast(dtype) if there else pl.lit(None, dtype)
    if there and name in _TIMES:
        found = pl.col(name).map_batches(_moments, return_dtype=pl.Float64)
    if name == "limit_by":
        known = found.is_in([by.value for by in LimitBy])
        found = pl.when(known).then(found)
    default = 0 if name == "gpus" else _DEFAULTS.get(name)
    return (found if default is None else found.fill_null(default)).alias(name)


def _moments(told: pl.Series) -> pl.Series:
    """Unix seconds of numbers and ISO times alike; NaN where there is no time to be read."""
    seconds = told.cast(pl.Float64, strict=False)
    odd = (seconds.is_null() | (seconds >= _LEAST_MS)) & told.is_not_null()
    if not odd.any():
        return seconds
    texts = told.filter(odd).cast(pl.String)
    read = {text: _moment(text) for text in texts.unique()}
    return seconds.scatter(odd.arg_true(), [read[text] for text in texts])


def _moment(text: str) -> float | None:
    try:
        return None if text.strip().lower() in _NO_TIME else moment_s(text.strip(), None)
    except (ValueError, OverflowError):
        return math.nan


def _one_type(frame: pl.LazyFrame) -> pl.LazyFrame:
    """With one name for each GPU type, whichever alias the records use."""
    return frame.with_columns(pl.col("gpu_type").map_batches(_types, return_dtype=pl.String))


def _types(told: pl.Series) -> pl.Series:
    names = told.unique().drop_nulls()
    return told.replace(names, pl.Series([known_name(name) for name in names], dtype=pl.String))


def _dtype(name: str) -> type[pl.DataType]:
    return pl.Int64 if name in WHOLE else pl.Float64 if name in NUMBERS else pl.String


def with_live(source: JobSource, live: Live, memory: SiteMemory | None = None) -> JobSource:
    """The jobs of a source that had ended when the queue was read, and those of the queue.

    The GPUs of the scheduler come with them, what its jobs wait for, and what the site learned.
    """
    past = source.frame.filter(pl.col("end_s") < live.at_s)
    rows = [
        {name: getattr(job.request, name) or None for name in _OF_REQUEST}
        | {name: getattr(job, name) for name in _OF_JOB}
        | {
            "scheduler": live.scheduler,
            "cluster": live.cluster,
            "state": PENDING if job.start_s is None else RUNNING,
            "model": asked_value(job.request.asked, "model"),
            "precision": asked_value(job.request.asked, "precision"),
        }
        for job in live.jobs
        if job.request.gpus
    ]
    now = pl.DataFrame(rows, schema=dict(empty().collect_schema())).lazy()
    frame = pl.concat([past, now], how="diagonal")
    return replace(source, frame=frame, pools=live.pools, live=live, memory=memory)


@dataclass(frozen=True, slots=True)
class PeriodJobs:
    """The jobs that touch a period, in memory with the columns needed, and those set aside.

    Beside COLUMNS there are ``begin_s`` and ``finish_s`` (clipped to the period), ``hours``
    (GPU-hours inside it), ``outcome`` (a field of GpuHours) and ``wall_s`` (unclipped). In place
    of ``asked`` there is ``config``, that like jobs share: what was asked without steps.
    """

    table: pl.DataFrame
    period: Period
    set_aside: tuple[SetAside, ...]


def jobs_of(frame: pl.LazyFrame, period: Period) -> PeriodJobs:
    """The jobs of a history's frame that ran in the period, clipped to it.

    A job that was still running at ``until_s`` counts as running, whatever became of it later.
    Jobs submitted in the period that never started, or whose clock makes no sense, are set aside.
    """
    since, until = period.since_s, period.until_s
    touching = ((pl.col("end_s") > since) & (pl.col("submit_s") < until)) | UNREAD
    running = (pl.col("state") == RUNNING) & pl.col("end_s").is_null()
    known = frame.select(COLUMNS).with_columns(
        end_s=pl.when(running).then(pl.lit(until)).otherwise("end_s")
    )
    reason = pl.coalesce(*(pl.when(bad).then(pl.lit(why)) for why, bad in _ASIDE))
    config = pl.col("asked").str.replace(STEPS, "")
    read = known.filter(touching).with_columns(aside=reason, config=config).drop("asked").collect()
    aside = read.filter(pl.col("aside").is_not_null())
    kept = read.filter(pl.col("aside").is_null() & (pl.col("start_s") < until)).drop("aside")
    outcome = pl.col("state").replace_strict(OUTCOMES, default=UNKNOWN)
    table = kept.with_columns(
        begin_s=pl.max_horizontal("start_s", pl.lit(since)),
        finish_s=pl.min_horizontal("end_s", pl.lit(until)),
        wall_s=pl.col("end_s") - pl.col("start_s"),
        outcome=pl.when(pl.col("end_s") > until).then(pl.lit("running")).otherwise(outcome),
        **{name: _named(name) for name in ("user", "account", "partition", "gpu_type")},
        **{name: _named(name) for name in ("model", "precision")},
    ).with_columns(hours=pl.col("gpus") * (pl.col("finish_s") - pl.col("begin_s")) / 3600)
    counted = aside.group_by("aside").agg(pl.len(), pl.col("job_id").first()).sort("aside")
    told = (SetAside(reason=why, jobs=n, example=job) for why, n, job in counted.iter_rows())
    return PeriodJobs(table, period, tuple(told))


def tensor_core_gpus() -> tuple[str, ...]:
    """Names of the GPUs that compute faster in a format below FP32."""
    return tuple(name for name, gpu in gpus().items() if "fp16_tensor" in gpu.peak_flops)


def peak_gpus(table: pl.DataFrame) -> dict[str, int]:
    """The most GPUs of each type in use at once; one that ends gives back before one starts."""
    ran = table.select("gpu_type", "gpus", "begin_s", "finish_s").filter(
        pl.col("finish_s") > pl.col("begin_s")
    )
    gpus = pl.col("gpus").cast(pl.Int64)
    changes = pl.concat(
        [
            ran.select("gpu_type", at="finish_s", change=-gpus),
            ran.select("gpu_type", at="begin_s", change=gpus),
        ]
    )
    # Ends stand before starts, and a stable sort leaves them so at the same moment.
    in_order = pl.col("change").sort_by("at", maintain_order=True)
    most = changes.group_by("gpu_type").agg(in_order.cum_sum().max()).sort("gpu_type")
    return dict(most.iter_rows())


def stated_pools(stated: Sequence[Pool], told: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools that were stated, then those of other types that a scheduler told of."""
    known = {pool.name for pool in stated}
    return *stated, *(pool for pool in told if pool.name not in known)


def pools_of(table: pl.DataFrame, stated: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools that were stated, then those of other types at their peak."""
    peaks = [Pool(name=name, gpus=most) for name, most in peak_gpus(table).items()]
    return stated_pools(stated, peaks)


def _named(column: str) -> pl.Expr:
    """A text, ``unknown`` where it is missing or empty."""
    text = pl.col(column)
    return pl.when(text.is_null() | (text == "")).then(pl.lit(UNKNOWN)).otherwise(text)
