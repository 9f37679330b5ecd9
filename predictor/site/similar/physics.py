"""What physics says of requests that name their network."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Any

import numpy as np

from ...errors import PrecisionTimeError
from ...estimate.core import Predictor
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text
from .request import JobRequest
from .run_times import Floats

LEVELS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
KEPT = 4096


class PhysicsView:
    """A predictor, asked about requests; what it cannot price it says nothing of."""

    def __init__(self, predictor: Predictor, source: str = "") -> None:
        self._predictor, self._source = predictor, source
        self._prediction = lru_cache(KEPT)(self._predicted)

    def prediction(self, job: JobRequest) -> Prediction | None:
        """The prediction of a request, None where it names no network or not enough else."""
        return self._prediction(job.asked, job.gpu_type, job.gpus) if job.asked else None

    def ratio(self, ran: JobRequest, job: JobRequest) -> float | None:
        """The ln of how much longer a sample takes on the GPUs of the job; None where unknown."""
        one, two = self.prediction(ran), self.prediction(job)
        if one is None or two is None:
            return None
        if job.length is not None and job.length.unit == "steps":
            return log(two.step_s / one.step_s)
        return log(one.throughput / two.throughput)

    def ln_s(self, job: JobRequest) -> Floats | None:
        """Run times (n,) in ln seconds that are alike likely; None where no length is stated."""
        found = self.prediction(job)
        if found is None or found.total_s is None:
            return None
        return np.log([found.total_quantile_s(level) or 1.0 for level in LEVELS])

    def _predicted(self, asked: str, gpu_type: str, gpus: int) -> Prediction | None:
        stated = parse_text(asked, "request")
        given: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if gpu_type:
            given["gpu"] = gpu_type
        try:
            job = stated.job(**given)
            return self._predictor.predict(job.but(source=self._source, **given))
        except PrecisionTimeError:
            return None
