"""The runs of a history or of an SWF file as jobs to replay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...errors import GraphError, JobError, TraceError
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text
from ...job.training_job import TrainingJob
from ..ended_job import EndedJob
from ..history.ingest import Item, Through
from ..history.run import Run
from ..history.swf import SwfFile, runs_of_swf
from ..replay import Pool
from ..similar.past_runs import PastRun, RunEnd
from .workload import LimitBounds, LoggedJob, Workload, workload_of

# Jobs whose GPU type is not known share one pool: partitions of a cluster share their nodes.
SHARED_POOL = "cluster"

Predict = Callable[[TrainingJob], Prediction]


def workload_of_runs(
    runs: Iterable[Item],
    predict: Predict | None = None,
    *,
    pools: Sequence[Pool] = (),
    bounds: LimitBounds,
) -> Workload:
    """Runs on the pool of their GPU type; where it is not known, on one for all.

    A single pool is for all jobs where no type is known of any. ``predict`` is asked about every
    job that is identified and states its length. The limit counts as the user's only where the
    user set it.
    """
    skipped: Counter[str] = Counter()
    jobs = []
    shared = pools[0].name if len(pools) == 1 else SHARED_POOL
    for run in runs:
        found = _logged(run, predict, shared) if isinstance(run, Run) else run
        if isinstance(found, LoggedJob):
            jobs.append(found)
        elif not isinstance(found, Through):
            skipped[found if isinstance(found, str) else found.reason] += 1
    return workload_of(jobs, pools=pools, bounds=bounds, skipped=skipped)


def workload_of_swf(
    file: SwfFile,
    *,
    processors_per_gpu: float = 1.0,
    pools: Sequence[Pool] = (),
    bounds: LimitBounds,
) -> Workload:
    """The jobs of an SWF file on one pool, by default the machine of its header."""
    runs = list(runs_of_swf(file, processors_per_gpu=processors_per_gpu))
    if len(pools) > 1:
        raise TraceError("an SWF file is replayed on one pool: give --pool once")
    if not pools and file.processors is not None:
        gpus = max(1, math.floor(file.processors / processors_per_gpu))
        pools = (Pool(name=SHARED_POOL, gpus=gpus),)
    return workload_of_runs(runs, pools=pools, bounds=bounds)


def _logged(run: Run, predict: Predict | None, shared: str) -> LoggedJob | str:
    job = run.ended
    if job.start_s is None:
        return "never started"
    if job.gpus < 1:
        return "no GPUs"
    if not job.submit_s <= job.start_s <= job.end_s:
        return "submitted, started and ended in the wrong order"
    past = PastRun.of(run)
    if past is None:
        return "no run time"
    return LoggedJob(
        start_s=job.start_s,
        gpus=job.gpus,
        pool=job.gpu_type or shared,
        limit_s=past.request.limit_s,
        censored=past.ended is RunEnd.CUT_OFF,
        past=past,
        prediction=None if predict is None or not run.asked else _predicted(run, predict),
    )


def _predicted(run: Run, predict: Predict) -> Prediction | None:
    try:
        found = predict(_job(run.asked, run.ended))
    except (JobError, GraphError):
        return None
    return None if found.steps is None else found


def _job(asked: str, ended: EndedJob) -> TrainingJob:
    """The job on the GPUs it was given; raises JobError where it is not a whole description."""
    stated = parse_text(asked, "history")
    per_node = -(-ended.gpus // max(1, ended.nodes))
    return stated.job(gpu=ended.gpu_type or "", gpus=ended.gpus, gpus_per_node=per_node)
