"""Answers to jobs that state the same and ask for the same, however they are called or worded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from predictor.identify.stated import Stated

from .cluster import Cluster
from .protocol import Answer, Request

MAX_KEPT = 1024
# What a decision takes from these is in what the job states.
_TOLD = {"name", "comment", "extra", "script", "argv", "environment", "work_dir"}
_CHANGES = {"kind", "job_id", "old"}  # a change of a job is not kept
_asked = attrgetter(*(f.name for f in fields(Request) if f.name not in _TOLD | _CHANGES))


@dataclass(frozen=True, slots=True)
class Job:
    """All that an answer rests on but policy, predictor and the view of Slurm."""

    asked: tuple[object, ...]
    values: tuple[tuple[str, object], ...]
    origins: tuple[tuple[str, str], ...]
    rest: tuple[object, ...]


def job_of(request: Request, stated: Stated) -> Job:
    """A submitted job as far as it bears on its answer."""
    return Job(
        _asked(request),
        tuple(stated.values.items()),
        tuple(stated.origins.items()),
        (stated.problems, stated.unknown_model),
    )


class KnownAnswers:
    """Answers for as long as a view of Slurm is the newest."""

    def __init__(self) -> None:
        self._view: Cluster | None = None
        self._answers: dict[Job, Answer] = {}

    def get(self, view: Cluster | None, job: Job) -> Answer | None:
        """The answer by this view, None where there is none yet."""
        return self._answers.get(job) if view is self._view else None

    def keep(self, view: Cluster | None, job: Job, answer: Answer) -> None:
        """Keep an answer; those of another view, and all when there are too many, are dropped."""
        if view is not self._view or len(self._answers) >= MAX_KEPT:
            self._answers, self._view = {}, view
        self._answers[job] = answer
