"""Predictions where they may take time, and what is known of them where they may not.

A network in a shape that was never asked about takes tens of milliseconds. So the process that
answers slurmctld holds only predictions that were made before; the one aside makes the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from predictor.errors import PrecisionTimeError
from predictor.estimate.prediction import Prediction
from predictor.job.training_job import TrainingJob

MAX_KNOWN = 8192
# A prediction, or why there is none.
Made = tuple[TrainingJob, Prediction | str]


class UnknownYetError(Exception):
    """Nothing was predicted of this job so far."""


class Predicts(Protocol):
    """What decisions need of a predictor."""

    def predict(self, job: TrainingJob) -> Prediction:
        """Predict one job; raises PrecisionTimeError."""


class MadeBefore:
    """Answers with predictions that were made elsewhere; raises UnknownYetError for others."""

    def __init__(self) -> None:
        self._known: OrderedDict[TrainingJob, Prediction | str] = OrderedDict()

    def predict(self, job: TrainingJob) -> Prediction:
        """The prediction of a job that is known."""
        found = self._known.get(job)
        if found is None:
            raise UnknownYetError
        if isinstance(found, str):
            raise PrecisionTimeError(found)
        return found

    def take(self, made: Sequence[Made]) -> None:
        """Know more."""
        self._known.update(made)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class Remembering:
    """A predictor whose predictions can be told to others."""

    def __init__(self, predictor: Predicts) -> None:
        self._predictor = predictor
        self._made: list[Made] = []

    def predict(self, job: TrainingJob) -> Prediction:
        """Predict one job; raises PrecisionTimeError."""
        try:
            found = self._predictor.predict(job)
        except PrecisionTimeError as error:
            self._made.append((job, str(error)))
            raise
        self._made.append((job, found))
        return found

    def made(self) -> tuple[Made, ...]:
        """Those since this was last asked."""
        made, self._made = tuple(self._made), []
        return made
