"""Predictions of one job on every GPU type of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from predictor.errors import PrecisionTimeError
from predictor.estimate.core import Predictor
from predictor.estimate.fits import fits
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.site.calibration.run_reader import site_source
from predictor.site.similar.estimate import Estimate, PhysicsView, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import OWN, JobRequest, script_signature, stated_fields

from .commands import ran_by
from .config import Config
from .plain import mapping, text
from .pod_gpus import containers_with
from .records import GpuType, PodJob

# What a step is priced with, to rank GPU types, where the job does not say: the batch of the
# Trainer of Transformers, and a precision that GPUs since Volta have tensor cores for.
RANKED_BATCH = 8
RANKED_PRECISION = Precision.MIXED_FP16_FP32


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """One job on one GPU type: a prediction, or ``reason`` why there is none.

    ``assumed`` are the fields that the job leaves open and a step was priced with all the same:
    good enough to rank GPU types, and for nothing else.

    A slice of a GPU takes the time of the whole GPU over its share of the multiprocessors, and a
    GPU shared by several pods that many times longer, as if all of them were busy.
    """

    type: GpuType
    prediction: Prediction | None = None
    reason: str = ""
    gpu_fraction: float = 1.0
    assumed: tuple[str, ...] = ()

    @property
    def unclear(self) -> str:
        """Why there is no time; empty where there is one."""
        open_ = f"{self.assumed[0].replace('_', '-')} is not stated" if self.assumed else ""
        return self.reason or open_

    @property
    def slowdown(self) -> float:
        """How many times slower than on whole GPUs of the job's own."""
        return self.type.replicas / self.type.mig_share / self.gpu_fraction

    @property
    def step_s(self) -> float | None:
        """Median seconds of one optimizer step."""
        return None if self.prediction is None else self.prediction.step_s

    @property
    def fits(self) -> bool:
        """Whether the predicted memory fits the device; True where nothing is predicted."""
        if self.prediction is None:
            return True
        try:
            size = self.type.memory_bytes
            return fits(self.prediction.job, margin=0.0, have_bytes=size).ok
        except PrecisionTimeError:
            return True

    def total_s(self, quantile: float) -> float | None:
        """Seconds of all steps at a quantile; None without a prediction or a length."""
        return None if self.prediction is None else self.prediction.total_quantile_s(quantile)


def estimates(
    predictor: Predictor, config: Config, job: PodJob, types: Iterable[GpuType]
) -> tuple[TypeEstimate, ...]:
    """The job on each type; never raises for what a user stated."""
    return tuple(_estimate(predictor, config, job, kind) for kind in types)


def lacking(job: PodJob) -> str:
    """What the user must state before GPU types can be ranked; empty where nothing lacks."""
    if job.stated.unknown_model is not None:
        return f"model {job.stated.unknown_model} is not known"
    return "" if job.stated.model else "model is not stated"


def assumed(job: PodJob, config: Config) -> tuple[str, ...]:
    """What a time cannot rest on: fields that are not stated, or that cannot be read."""
    values = job.stated.values
    unstated = [] if values.keys() & {"batch_size", "global_batch_size"} else ["batch_size"]
    if "precision" not in values and not (job.stated.trainer or config.assumed_precision):
        unstated.append("precision")
    if job.claimed and "gpus" not in values:
        unstated.append("gpus")
    return (*unstated, *(doubt.field for doubt in job.stated.doubts))


def _estimate(predictor: Predictor, config: Config, job: PodJob, kind: GpuType) -> TypeEstimate:
    reason, guessed = lacking(job), assumed(job, config)
    if not reason and kind.gpu is None:
        reason = f"GPU {kind.product} is not known"
    if reason or kind.gpu is None:
        return TypeEstimate(kind, reason=reason)
    try:
        predicted = predictor.predict(_training_job(config, job, kind, guessed))
    except PrecisionTimeError as error:
        return TypeEstimate(kind, reason=str(error))
    found = TypeEstimate(kind, predicted, gpu_fraction=job.gpu_fraction, assumed=guessed)
    if (slowdown := found.slowdown) == 1:
        return found
    step_s, throughput = predicted.step_s * slowdown, predicted.throughput / slowdown
    return replace(found, prediction=replace(predicted, step_s=step_s, throughput=throughput))


def _training_job(
    config: Config, job: PodJob, kind: GpuType, guessed: tuple[str, ...]
) -> TrainingJob:
    assert kind.gpu is not None
    given: dict[str, Any] = {
        "precision": None if job.stated.trainer else config.assumed_precision or RANKED_PRECISION,
        "gpus": job.gpus,
        "gpus_per_node": max(1, min(job.gpus, kind.count if job.pods > 1 else job.gpus_per_pod)),
        "fabric": config.hardware.fabric,
        "source": site_source(config.site),
    }
    values = dict(job.stated.values) | {"gpu": kind.gpu.name}
    if "batch_size" in guessed:
        values["batch_size"] = RANKED_BATCH
    problems = () if guessed else job.stated.problems
    return replace(job.stated, values=values, problems=problems).job(**given)


class SiteEstimates:
    """Estimates by what the site remembers; None for a job of which it knows nothing."""

    def __init__(self, memory: SiteMemory, predictor: Predictor, site: str = "") -> None:
        self._memory = memory
        self._physics = PhysicsView(predictor, site_source(site) or "")

    def of(self, *, namespace: str, asked: str, **known: Any) -> Estimate | None:
        """The estimate of a job by what is ``known`` of it, as fields of a JobRequest.

        None where neither its like has run nor physics speaks. Kubernetes knows no users: the
        namespace stands for the user and for the account.
        """
        who: dict[str, Any] = {"user": namespace, "account": namespace}
        job = JobRequest(**who, **known, **stated_fields(asked))
        found = estimate_job(job, self._memory, self._physics if "model=" in job.asked else None)
        like = any(one.similarity in OWN for one in found.similar)
        return found if like or found.physics else None


def ran_signature(template: Mapping[str, Any], resource: str) -> str:
    """The signature of image and command of a pod template; the image's tag does not count."""
    container = next(iter(containers_with(mapping(template, "spec"), resource)), {})
    ran = ran_by(container)
    image, _, _ = text(container, "image").partition("@")
    head, slash, last = image.rpartition("/")
    words = (f"{head}{slash}{last.partition(':')[0]}", ran.script or " ".join(ran.words))
    return script_signature(" ".join(words))
