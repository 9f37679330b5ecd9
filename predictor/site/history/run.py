"""One job after its end, whichever scheduler ran it: what was asked, predicted, what happened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ..step_rate import StepReport

_PAIR = re.compile(r"""(?:^|\s)(\w+)=(?:"([^"]*)"|(\S*))""")


class JobState(StrEnum):
    """How a job ended; REQUEUED is a run that was ended to start again.

    UNKNOWN is no state that is known; the history keeps none of these.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
    REQUEUED = "requeued"
    UNKNOWN = "unknown"


CUT_OFF = (JobState.TIMEOUT, JobState.DEADLINE)
# Their elapsed time says something of the time of their steps.
ENDED_ITS_STEPS = (JobState.COMPLETED, *CUT_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """One job after its end.

    Times are Unix seconds, ``start_s`` None where it never started; ``limit_s`` None where it is
    unlimited or not known. ``gpu_type`` is the scheduler's name of the allocated type, None where
    it tells none. ``stated`` is what the user said of the job (comment or annotations),
    ``decision`` what we wrote on it at submit (Slurm's AdminComment). ``energy_j`` is None where
    not measured. ``cpus`` and ``memory_bytes`` are what the whole job asked for, ``script`` is the
    signature of its script, ``directory`` where it was submitted; empty where not known.
    """

    scheduler: str
    cluster: str
    job_id: str
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: JobState
    submit_s: float
    start_s: float | None
    end_s: float
    limit_s: float | None = None
    gpus: int
    gpu_type: str | None = None
    nodes: int = 0
    node_names: tuple[str, ...] = ()
    stated: str = ""
    decision: str = ""
    submit_line: str = ""
    constraint: str = ""
    energy_j: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    script: str = ""
    directory: str = ""


class LimitBy(StrEnum):
    """Whose time limit a job ran under."""

    US = "precision-time"
    USER = "user"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What was said before the job ran; times in seconds of all steps, ``step_s`` of one.

    ``upper_s`` is the ``level`` quantile. ``gpu`` and ``gpus`` are what it was said for,
    ``version`` the predictor that said it, ``tier`` how new the job was to it. ``limit_s`` is the
    limit we set, None where we set none.
    """

    step_s: float | None = None
    median_s: float | None = None
    upper_s: float | None = None
    level: float | None = None
    gpu: str | None = None
    gpus: int | None = None
    version: str | None = None
    tier: str | None = None
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the job itself said of its steps: the last step report of the run.

    ``step_s`` is the median of its recent steps, ``steps`` how many of them this run made,
    ``startup_s`` from the start of the job to its first step, ``paused_s`` the seconds between
    steps that were no steps (evaluation, checkpoints). ``loader_bound`` is the share of the step
    spent waiting for input, where it was said.
    """

    step_s: float
    steps: int
    step_s_spread: float | None = None
    total_steps: int | None = None
    startup_s: float | None = None
    paused_s: float | None = None
    loader_bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedProgress:
    """How far the job's own output said it was at its end, as ``precision-time progress`` reads it.

    ``at`` and ``total`` count ``unit`` (step, epoch, sample, token).
    """

    unit: str
    at: float | None = None
    total: float | None = None
    seconds_per_unit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job after its end, or a measured run that never had a scheduler (``scheduler`` csv).

    ``asked`` is the job as it was identified, in the shared grammar (``model=... precision=...``),
    empty where nothing was known of it; ``origin`` where that came from (comment, script, rule).
    Two records are the same job when scheduler, cluster, job id and whole second of submission
    agree: Slurm gives a number again after a wrap, and a requeued job a second record.
    """

    ended: EndedJob
    asked: str = ""
    origin: str = ""
    limit_by: LimitBy | None = None
    predicted: Predicted | None = None
    reported: Reported | None = None
    printed: PrintedProgress | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells one job from another."""
        job = self.ended
        return job.scheduler, job.cluster, job.job_id, int(job.submit_s)

    @property
    def model(self) -> str | None:
        """The model that was asked for, None where it was not known."""
        return asked_value(self.asked, "model")

    @property
    def precision(self) -> str | None:
        """The precision that was asked for, None where it was not known."""
        return asked_value(self.asked, "precision")

    @property
    def gpu(self) -> str | None:
        """The GPU that was asked for, None where any would do."""
        return asked_value(self.asked, "gpu")


def asked_value(asked: str, name: str) -> str | None:
    """The value of one field in a job as it was identified, None where it is not there."""
    found = (match for match in _PAIR.finditer(asked) if match[1] == name)
    match = next(found, None)
    return None if match is None else match[2] or match[3] or None


def reported(report: StepReport, start_s: float | None) -> Reported | None:
    """What a report says of a run that started at ``start_s`` (Unix seconds, None if unknown).

    None where the run made no step: then its step time is of an earlier one.
    """
    if not report.steps_of_run:
        return None
    began_s, startup_s = report.started_s, None
    if began_s is not None and start_s is not None:
        startup_s = max(0.0, began_s - start_s)
    return Reported(
        step_s=report.step_s,
        steps=report.steps_of_run,
        step_s_spread=report.step_s_spread,
        total_steps=report.total_steps,
        startup_s=startup_s,
        paused_s=report.paused_s,
    )
