"""The measured runs that generated jobs are drawn from, and the users who draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields

import numpy as np

from predictor.errors import JobError
from predictor.estimate.measurement import Measurement
from predictor.identify.grammar import parse_text, stated_text
from predictor.identify.keys import ALIASES, read_pairs
from predictor.identify.stated import Stated
from predictor.job.training_job import TrainingJob

from .arrivals import SIZES

USERS, GROUPS_OF_USERS = 60, 8
# A user's jobs: the favourite model this often, else the next, and so on.
FAVOURITE = 0.5
# Not part of a user's description: the scheduler knows the GPUs, the sample draws the length.
UNWRITTEN = ("gpu", "gpus", "steps", "epochs")
_DEFAULTS = {f.name: f.default for f in fields(TrainingJob) if f.init and f.default is not MISSING}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A measured run, and what a user would write of it."""

    measurement: Measurement
    asked: str


# By GPU and number of GPUs, then by model.
Candidates = Mapping[tuple[str, int], Mapping[str, tuple[Candidate, ...]]]


def candidates(rows: Sequence[Measurement]) -> Candidates:
    """The runs of usual size whose description in the grammar reads back as the same job."""
    found: dict[tuple[str, int], dict[str, list[Candidate]]] = {}
    for row in rows:
        job = row.job
        if job.gpus in SIZES and (asked := asked_of(job)) is not None:
            models = found.setdefault((job.gpu, job.gpus), {})
            models.setdefault(job.model, []).append(Candidate(row, asked))
    return {key: {model: tuple(found[key][model]) for model in sorted(found[key])} for key in found}


def asked_of(job: TrainingJob) -> str | None:
    """What a user would write of a job but its GPUs and its length.

    Options that the grammar cannot write are left out. None where anything else would be lost.
    """
    values = {name: getattr(job, name) for name in ALIASES if name not in UNWRITTEN}
    if job.gpus_per_node == min(8, job.gpus):
        del values["gpus_per_node"]
    values["options"] = tuple(pair for pair in job.options if _writable(pair))
    stated = {
        name: value
        for name, value in values.items()
        if value is not None and (name not in _DEFAULTS or value != _DEFAULTS[name])
    }
    text = stated_text(Stated(stated))
    try:
        read = parse_text(text, "comment").job(gpu=job.gpu, gpus=job.gpus, source=job.source)
    except JobError:
        return None
    whole = job.but(steps=None, epochs=None, options=read.options, optimizer=read.optimizer)
    return text if read == whole else None


def _writable(pair: tuple[str, str]) -> bool:
    try:
        return read_pairs("options", "=".join(pair)) == (pair,)
    except JobError:
        return False


class Population:
    """Users who each keep to a few models."""

    def __init__(self, rng: np.random.Generator, known: Candidates) -> None:
        self._rng = rng
        self._known = known
        self._taste = {
            key: [rng.permutation(sorted(models)).tolist() for _ in range(USERS)]
            for key, models in sorted(known.items())
        }
        activity = 1 / np.arange(1, USERS + 1)  # Zipf: few users submit most jobs
        self.activity = activity / activity.sum()

    def users(self, count: int) -> list[int]:
        """Who submits each job."""
        drawn: list[int] = self._rng.choice(USERS, count, p=self.activity).tolist()
        return drawn

    def run_of(self, user: int, gpu: str, gpus: int) -> Candidate:
        """One of the runs that this user does on so many GPUs."""
        models = self._taste[gpu, gpus][user]
        model = models[(int(self._rng.geometric(FAVOURITE)) - 1) % len(models)]
        rows = self._known[gpu, gpus][model]
        return rows[int(self._rng.integers(len(rows)))]
