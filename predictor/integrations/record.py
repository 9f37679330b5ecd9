"""Where a training leaves its step report, and the run of the history that it is."""

from __future__ import annotations

import getpass
import os
import platform
from pathlib import Path

from ..estimate.prediction import Prediction
from ..job.training_job import TrainingJob
from ..site.history.run import EndedJob, JobState, Predicted, Run, reported
from ..site.step_rate import FILE_NAME, StepReport, report_paths

HISTORY_VARIABLE = "PRECISION_TIME_HISTORY"
SCHEDULER = "csv"  # a measured run without a scheduler
LEVEL = 0.95
# Kubernetes shows what a container wrote here as the message of its end.
TERMINATION_LOG = Path("/dev/termination-log")


def scheduler_here() -> str:
    """``slurm``, ``kubernetes`` or nothing."""
    if os.environ.get("SLURM_JOB_ID"):
        return "slurm"
    return "kubernetes" if os.environ.get("KUBERNETES_SERVICE_HOST") else ""


def job_id_here() -> str:
    """The id of the job this process belongs to, empty outside of one.

    A pod knows its own where the downward API gives it as ``POD_UID``.
    """
    return os.environ.get("SLURM_JOB_ID") or os.environ.get("POD_UID") or ""


def report_path(directory: Path | None) -> Path:
    """The file of this job in ``directory``, else in the directory Slurm knows, else here."""
    here = directory or Path(os.environ.get("SLURM_SUBMIT_DIR") or Path.cwd())
    alone, shared = report_paths(here, FILE_NAME, job_id_here())
    return alone if job_id_here() else shared


def write_last_words(report: StepReport) -> None:
    """The report as the termination message of this pod, where there is none yet."""
    in_pod = scheduler_here() == "kubernetes" and TERMINATION_LOG.is_file()
    if in_pod and not TERMINATION_LOG.stat().st_size:
        TERMINATION_LOG.write_text(report.line() + "\n", encoding="utf-8")


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
    predicted = None
    if found is not None:
        predicted = Predicted(
            step_s=found.step_s,
            median_s=found.total_s,
            upper_s=found.total_quantile_s(LEVEL),
            level=LEVEL,
            gpu=found.job.gpu,
            gpus=found.job.gpus,
            tier=found.tier.value,
        )
    run = Run(
        ended=ended,
        asked=asked(job),
        origin="callback",
        predicted=predicted,
        reported=reported(report, submit_s),
    )
    with History.open() as history:
        history.add([run])
