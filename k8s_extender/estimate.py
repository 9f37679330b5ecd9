"""Predictions of one job on every GPU type of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from predictor.errors import PrecisionTimeError
from predictor.estimate.core import Predictor
from predictor.estimate.prediction import Prediction
from predictor.job.training_job import TrainingJob
from predictor.site.calibration.source import site_source

from .config import Config
from .records import GpuType, PodJob


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """One job on one GPU type: a prediction, or ``reason`` why there is none.

    A slice of a GPU takes the time of the whole GPU over its share of the multiprocessors, and a
    GPU shared by several pods that many times longer, as if all of them were busy.
    """

    type: GpuType
    prediction: Prediction | None = None
    reason: str = ""
    gpu_fraction: float = 1.0

    @property
    def slowdown(self) -> float:
        """How many times slower than on whole GPUs of the job's own."""
        return self.type.replicas / self.type.mig_share / self.gpu_fraction

    @property
    def step_s(self) -> float | None:
        """Median seconds of one optimizer step."""
        return None if self.prediction is None else self.prediction.step_s * self.slowdown

    def total_s(self, quantile: float) -> float | None:
        """Seconds of all steps at a quantile; None without a prediction or a length."""
        if self.prediction is None:
            return None
        total = self.prediction.total_quantile_s(quantile)
        return None if total is None else total * self.slowdown


def estimates(
    predictor: Predictor, config: Config, job: PodJob, types: Iterable[GpuType]
) -> tuple[TypeEstimate, ...]:
    """The job on each type; never raises for what a user stated."""
    return tuple(_estimate(predictor, config, job, kind) for kind in types)


def lacking(job: PodJob, config: Config) -> str:
    """What the user must state before anything can be predicted; empty where nothing lacks."""
    values = job.stated.values
    if job.stated.unknown_model is not None:
        return f"model {job.stated.unknown_model} is not known"
    if "model" not in values:
        return "model is not stated"
    if "batch_size" not in values and "global_batch_size" not in values:
        return "batch-size is not stated"
    if "precision" not in values and config.assumed_precision is None:
        return "precision is not stated"
    return ""


def _estimate(predictor: Predictor, config: Config, job: PodJob, kind: GpuType) -> TypeEstimate:
    reason = lacking(job, config)
    if not reason and kind.gpu is None:
        reason = f"GPU {kind.product} is not known"
    if reason or kind.gpu is None:
        return TypeEstimate(kind, reason=reason)
    try:
        predicted = predictor.predict(_training_job(config, job, kind))
    except PrecisionTimeError as error:
        return TypeEstimate(kind, reason=str(error))
    return TypeEstimate(kind, predicted, gpu_fraction=job.gpu_fraction)


def _training_job(config: Config, job: PodJob, kind: GpuType) -> TrainingJob:
    assert kind.gpu is not None
    given: dict[str, Any] = {
        "precision": config.assumed_precision,
        "gpus": job.gpus,
        "gpus_per_node": max(1, min(job.gpus, kind.count if job.pods > 1 else job.gpus_per_pod)),
        "fabric": config.hardware.fabric,
        "source": site_source(config.site),
    }
    values = dict(job.stated.values) | {"gpu": kind.gpu.name}
    return replace(job.stated, values=values).job(**given)
