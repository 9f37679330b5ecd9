"""What GPUs really did in jobs: utilisation, memory and power beside what was asked for.

Measured by the DCGM exporter and kept by Prometheus, or summed up by jobstats in AdminComment
(``JS1:`` and gzipped JSON; github.com/PrincetonUniversity/jobstats).
"""

from __future__ import annotations

import base64
import binascii
import csv
import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import polars as pl

from profiles.gpus import gpus

from ...errors import HistoryError
from ..history.ingest import Period
from .jobs import PeriodJobs, tensor_core_gpus
from .report_data import JobWaste, MeasuredUse, WasteKind

# A GPU below IDLE in the mean did nothing; one above BUSY whose tensor cores are below NO_TENSOR
# computed without them; a job that used less than SPARE of its host memory asked for too much.
IDLE, BUSY, NO_TENSOR, SPARE = 0.05, 0.3, 0.01, 0.25
MOST_ROWS = 500
LEAST_HOURS = 1.0  # GPU-hours below which nobody looks at a job
_TIMEOUT_S = 60.0
_MARK, _EMPTY = "JS1:", ("JS1:Short", "JS1:None")
_BLANK = 1e15  # DCGM writes 2**63 less a little for a value it does not have
_MIB = 2.0**20
# The labels that name a job: of the exporter's HPC mapping; of pods, where Prometheus renames.
_JOB_LABELS = ("hpc_job", "jobid", "job_id")
_POD_LABELS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))
_POD = re.compile(r"(?:-\d+)?-[a-z0-9]{5}$")
# What is asked of Prometheus by the field of GpuUse, and what its unit is multiplied by.
_QUERIES = {
    "utilisation": ("avg_over_time(DCGM_FI_DEV_GPU_UTIL[{s}s])", 0.01),
    "tensor": ("avg_over_time(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE[{s}s])", 1.0),
    "memory_bytes": ("max_over_time(DCGM_FI_DEV_FB_USED[{s}s])", _MIB),
    "watts": ("avg_over_time(DCGM_FI_DEV_POWER_USAGE[{s}s])", 1.0),
}


@dataclass(slots=True)
class GpuUse:
    """One GPU during one job; shares between 0 and 1, None where not measured."""

    utilisation: float | None = None
    tensor: float | None = None
    memory_bytes: float | None = None
    watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """The GPUs of one job, by its number or ``namespace/name``; means over GPUs, ``watts`` the sum.

    ``idle`` are GPUs that did nothing; ``gpu_memory_bytes`` is the most of any of them;
    ``host_memory_share`` is what was used of the memory asked for.
    """

    job: str
    measured: int
    idle: int
    utilisation: float
    tensor: float | None = None
    gpu_memory_bytes: float | None = None
    host_memory_share: float | None = None
    watts: float | None = None


def read_measured(source: str, period: Period) -> list[JobUse]:
    """Of a Prometheus (``http://...``), or of a table with JobID and AdminComment from sacct -P.

    Raises HistoryError where it cannot be read or does not hold what is needed.
    """
    if re.match("https?://", source):
        return of_prometheus(source, period)
    try:
        with Path(source).open(encoding="utf-8", errors="replace", newline="") as lines:
            rows = csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
            if not {"JobID", "AdminComment"} <= set(rows.fieldnames or ()):
                raise HistoryError(
                    f"{source}: expected the columns JobID and AdminComment, as"
                    " sacct -X -P -o JobID,AdminComment writes them"
                )
            return of_comments((row["JobID"], row["AdminComment"] or "") for row in rows)
    except OSError as error:
        raise HistoryError(f"{source} cannot be read: {error.strerror}") from error


def of_comments(comments: Iterable[tuple[str, str]]) -> list[JobUse]:
    """Jobs by what jobstats wrote of them; other comments, and broken ones, say nothing."""
    found = []
    for job, text in comments:
        if text.startswith(_MARK) and text not in _EMPTY:
            try:
                told = json.loads(gzip.decompress(base64.b64decode(text[len(_MARK) :])))
                nodes = list(told["nodes"].values())
                each = [
                    GpuUse(share / 100, memory_bytes=node.get("gpu_used_memory", {}).get(gpu))
                    for node in nodes
                    for gpu, share in node.get("gpu_utilization", {}).items()
                ]
                asked = sum(node.get("total_memory", 0) for node in nodes)
                used = sum(node.get("used_memory", 0) for node in nodes)
                found += _job_use(job, each, used / asked if asked else None)
            except (binascii.Error, OSError, EOFError, zlib.error, ValueError, LookupError):
                continue
    return found


def of_prometheus(url: str, period: Period) -> list[JobUse]:
    """Jobs by the series of the DCGM exporter, over the period; raises HistoryError."""
    found: defaultdict[str, defaultdict[str, GpuUse]] = defaultdict(lambda: defaultdict(GpuUse))
    length_s = round(period.until_s - period.since_s)
    for name, (query, scale) in _QUERIES.items():
        words = urlencode({"query": query.format(s=length_s), "time": period.until_s})
        try:
            with urlopen(f"{url.rstrip('/')}/api/v1/query?{words}", timeout=_TIMEOUT_S) as answer:
                rows: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except (URLError, OSError, ValueError, LookupError) as error:
            raise HistoryError(f"{url} gives no measurements: {error}") from error
        for one in rows:
            labels, value = one["metric"], float(one["value"][1])
            job = _job_of(labels)
            if job and value < _BLANK:
                gpu = found[job][f"{labels.get('UUID') or sorted(labels.items())}"]
                setattr(gpu, name, value * scale)
    return [use for job, each in found.items() for use in _job_use(job, each.values(), None)]


def _job_of(labels: Mapping[str, str]) -> str:
    """The job of a series; empty where no job had the GPU."""
    named = next((labels[name] for name in _JOB_LABELS if labels.get(name)), "")
    for namespace, pod in _POD_LABELS:
        if not named and labels.get(pod) and labels.get(namespace):
            named = f"{labels[namespace]}/{_POD.sub('', labels[pod])}"
    return named


def _job_use(job: str, gpus: Iterable[GpuUse], host_share: float | None) -> list[JobUse]:
    known = [gpu for gpu in gpus if gpu.utilisation is not None]
    if not known:
        return []
    told = {
        name: [value for gpu in known if (value := getattr(gpu, name)) is not None]
        for name in ("utilisation", "tensor", "memory_bytes", "watts")
    }
    use = JobUse(
        job=job,
        measured=len(known),
        idle=sum(share < IDLE for share in told["utilisation"]),
        utilisation=fmean(told["utilisation"]),
        tensor=fmean(told["tensor"]) if told["tensor"] else None,
        gpu_memory_bytes=max(told["memory_bytes"], default=None),
        host_memory_share=host_share,
        watts=sum(told["watts"]) if told["watts"] else None,
    )
    return [use]


def measured_jobs(jobs: PeriodJobs, uses: Iterable[JobUse]) -> pl.DataFrame:
    """The jobs of the period that were measured, with the columns of JobUse beside their own."""
    schema = {
        one.name: pl.String if one.name == "job" else pl.Int64 if one.type == "int" else pl.Float64
        for one in fields(JobUse)
    }
    found = pl.DataFrame([asdict(use) for use in uses], schema=schema).unique("job", keep="last")
    pod = pl.concat_str("account", pl.lit("/"), "name")
    job = pl.when(pl.col("scheduler") == "kubernetes").then(pod).otherwise("job_id")
    return jobs.table.with_columns(job=job).join(found, on="job")


def use_by_user(table: pl.DataFrame) -> tuple[MeasuredUse, ...]:
    """GPU-hours held, used and predicted of the measured jobs by user, the most held first."""
    sizes = {name: float(gpu.memory_bytes) for name, gpu in gpus().items()}
    hours, size = pl.col("hours"), pl.col("gpu_type").replace_strict(sizes, default=None)
    inside = (pl.col("finish_s") - pl.col("begin_s")) / 3600
    rows = (
        table.lazy()
        .group_by("user")
        .agg(
            pl.len().alias("jobs"),
            hours.sum().alias("gpu_hours"),
            (hours * pl.col("utilisation")).sum().alias("used_gpu_hours"),
            (hours * pl.col("idle") / pl.col("measured")).sum().alias("idle_gpu_hours"),
            _known_sum(pl.col("gpus") * pl.col("predicted_median_s") / 3600, "predicted_gpu_hours"),
            (pl.col("gpu_memory_bytes") / size).median().alias("gpu_memory_share"),
            pl.col("host_memory_share").median(),
            _known_sum(pl.col("watts") * inside / 1000, "kwh"),
        )
        .sort("gpu_hours", "user", descending=[True, False])
        .collect()
    )
    return tuple(MeasuredUse(**row) for row in rows.to_dicts())


def _known_sum(values: pl.Expr, name: str) -> pl.Expr:
    """A sum, null where nothing is known."""
    return pl.when(values.is_not_null().any()).then(values.sum()).alias(name)


def wasteful(table: pl.DataFrame) -> tuple[JobWaste, ...]:
    """Jobs whose GPUs did nothing, or not what they are good at, the most wasted first."""
    hours, measured = pl.col("hours"), pl.col("measured")
    full = (pl.col("tensor") < NO_TENSOR) & (pl.col("utilisation") > BUSY)
    kinds = {
        WasteKind.IDLE: (pl.col("idle") == measured, hours),
        WasteKind.SOME_IDLE: (
            (pl.col("idle") > 0) & (pl.col("idle") < measured),
            hours * pl.col("idle") / measured,
        ),
        WasteKind.NO_TENSOR_CORES: (
            full & pl.col("gpu_type").is_in(tensor_core_gpus()),
            hours * pl.col("utilisation"),
        ),
        WasteKind.HOST_MEMORY: (pl.col("host_memory_share") < SPARE, pl.lit(0.0)),
    }
    told = ("job_id", "user", "gpus", "idle", "measured", "utilisation", "host_memory_share")
    found = pl.concat(
        [
            table.filter(is_one & (hours >= LEAST_HOURS)).select(
                *told, kind=pl.lit(kind.value), gpu_hours=hours, wasted_gpu_hours=wasted
            )
            for kind, (is_one, wasted) in kinds.items()
        ]
    ).sort("wasted_gpu_hours", "gpu_hours", "job_id", descending=[True, True, False])
    return tuple(
        JobWaste(**row | {"kind": WasteKind(row["kind"])})
        for row in found.head(MOST_ROWS).iter_rows(named=True)
    )
