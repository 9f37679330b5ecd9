"""Where a running job's step report goes: the file a scheduler follows, and a pod's last words."""

from __future__ import annotations

import os
from pathlib import Path

from ..site.step_rate import FILE_NAME, StepReport, report_paths

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
