"""A run of the history that may become a measurement of its site."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...job.training_job import SITE_PREFIX, TrainingJob
from ..history.run import Run


def site_source(cluster: str) -> str:
    """``TrainingJob.source`` of the jobs of a cluster; empty for a cluster without a name."""
    return cluster if not cluster or cluster.startswith(SITE_PREFIX) else SITE_PREFIX + cluster


class StepEvidence(StrEnum):
    """What a step time rests on."""

    REPORTED = "reported"
    ELAPSED = "elapsed"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRun:
    """A run with the job it was and seconds of one optimizer step.

    ``job.source`` is the site. ``step_s`` is below the truth for a ``LOWER_BOUND``: the run hit
    its limit before its last step. ``weight`` from 0 to 1 is how much of a measurement it counts,
    ``user`` whose word it is (hashed where the history is).
    """

    run: Run
    job: TrainingJob
    step_s: float
    kind: StepEvidence
    user: str
    weight: float = 1.0
