"""A training that no scheduler ran, as a run of the history."""

from __future__ import annotations

import getpass
import os
import platform
from typing import TYPE_CHECKING

from ..estimate.prediction import Prediction
from ..job.training_job import TrainingJob
from ..site.ended_job import EndedJob, JobState
from ..site.step_rate import StepReport
from .reports import scheduler_here

if TYPE_CHECKING:
    from ..site.history.run import Predicted

HISTORY_VARIABLE = "PRECISION_TIME_HISTORY"
SCHEDULER = "csv"  # a measured run without a scheduler
LEVEL = 0.95


def wanted() -> bool:
    """Whether this run is to be recorded here.

    A history has to be named. Jobs of Slurm and Kubernetes are recorded by `history ingest`, with
    the step report of the job; a second record would count them twice.
    """
    return bool(os.environ.get(HISTORY_VARIABLE)) and not scheduler_here()


def record(
    job: TrainingJob,
    found: Prediction | None,
    report: StepReport,
    *,
    submit_s: float,
    end_s: float,
    state: JobState,
) -> None:
    """Add the run; times in Unix seconds. Raises HistoryError, ImportError without the extra."""
    from ..site.history.csv_rows import asked
    from ..site.history.run import Run
    from ..site.history.step_reports import reported
    from ..site.history.store import History

    ended = EndedJob(
        scheduler=SCHEDULER,
        cluster=job.source or platform.node() or SCHEDULER,
        job_id=f"{os.getpid()}",
        name=job.model,
        user=getpass.getuser(),
        state=state,
        submit_s=submit_s,
        start_s=submit_s,
        end_s=end_s,
        gpus=job.gpus,
        gpu_type=job.gpu,
        nodes=job.nodes,
    )
    predicted = None if found is None else _predicted(found)
    run = Run(
        ended=ended,
        asked=asked(job),
        origin="callback",
        predicted=predicted,
        reported=reported(report, submit_s),
    )
    with History.open() as history:
        history.add([run])


def _predicted(found: Prediction) -> Predicted:
    from ..site.history.run import Predicted

    return Predicted(
        step_s=found.step_s,
        median_s=found.total_s,
        upper_s=found.total_quantile_s(LEVEL),
        level=LEVEL,
        gpu=found.job.gpu,
        gpus=found.job.gpus,
        tier=found.tier.value,
    )
