"""The runs of a history as jobs to replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...errors import GraphError, JobError
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text
from ...job.training_job import TrainingJob
from ..ended_job import EndedJob, JobState
from ..history.run import LimitBy, Run
from ..replay import Pool
from .workload import UNLIMITED_S, LimitBounds, PastJob, Workload, workload_of

KILLED = (JobState.TIMEOUT, JobState.DEADLINE)

Predict = Callable[[TrainingJob], Prediction]


def workload_of_runs(
    runs: Iterable[Run],
    predict: Predict | None = None,
    *,
    pools: Sequence[Pool] = (),
    bounds: LimitBounds,
) -> Workload:
    """Runs on the pool of their GPU type, or of their partition where the type is not known.

    ``predict`` is asked about every job that is identified and states its length. The limit counts
    as the user's only where the user set it.
    """
    skipped: Counter[str] = Counter()
    jobs = []
    for run in runs:
        found = _past(run, predict)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            jobs.append(found)
    return workload_of(jobs, pools=pools, bounds=bounds, skipped=skipped)


def _past(run: Run, predict: Predict | None) -> PastJob | str:
    job = run.ended
    if job.start_s is None:
        return "never started"
    if job.gpus < 1:
        return "no GPUs"
    if not job.submit_s <= job.start_s <= job.end_s:
        return "submitted, started and ended in the wrong order"
    return PastJob(
        submit_s=job.submit_s,
        start_s=job.start_s,
        run_s=job.end_s - job.start_s,
        gpus=job.gpus,
        pool=job.gpu_type or job.partition,
        limit_s=_asked_s(run),
        censored=job.state in KILLED,
        prediction=None if predict is None or not run.asked else _predicted(run, predict),
    )


def _asked_s(run: Run) -> float | None:
    if run.limit_by in (LimitBy.DEFAULT, LimitBy.US):
        return None
    return UNLIMITED_S if run.ended.limit_s is None else run.ended.limit_s


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
