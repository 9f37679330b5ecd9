"""Predictions of one job on every GPU type, their order by policy, and what refuses a type."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from predictor.errors import PrecisionTimeError
from predictor.estimate.assumptions import OTHER_PRECISIONS
from predictor.estimate.core import Predictor
from predictor.estimate.fits import fits
from predictor.estimate.limits import too_thin
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision, capability, runs_natively
from predictor.job.training_job import TrainingJob
from predictor.planning.cost import energy_of
from predictor.site.calibration.run_reader import site_source
from predictor.site.similar.estimate import Estimate, PhysicsView, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import OWN, JobRequest, stated_fields

from .config import Config
from .nodes import GpuType
from .workload import PodJob

# What a step is priced with, to rank GPU types, where the job does not say: the batch of the
# Trainer of Transformers, and a precision that GPUs since Volta have tensor cores for.
RANKED_BATCH = 8
RANKED_PRECISION = Precision.MIXED_FP16_FP32
MAX_ESTIMATES = 256


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


def lacking(job: PodJob) -> str:
    """What the user must state before GPU types can be ranked; empty where nothing lacks."""
    if job.stated.unknown_model is not None:
        return f"model {job.stated.unknown_model} is not known"
    return "" if job.stated.model else "model is not stated"


def estimated(predictor: Predictor, config: Config, job: PodJob, kind: GpuType) -> TypeEstimate:
    """The job on a GPU type; never raises for what a user stated."""
    stated = job.stated
    if reason := lacking(job):
        return TypeEstimate(kind, reason=reason)
    if kind.gpu is None:
        return TypeEstimate(kind, reason=f"GPU {kind.product} is not known")
    # What a time cannot rest on: fields that are not stated, or that cannot be read.
    assumed = [] if stated.values.keys() & {"batch_size", "global_batch_size"} else ["batch_size"]
    usual = config.assumed_precision if all(p.field != "precision" for p in stated.problems) else ""
    if "precision" not in stated.values and not (stated.trainer or usual):
        assumed.append("precision")
    if job.claimed and "gpus" not in stated.values:
        assumed.append("gpus")
    assumed += [doubt.field for doubt in stated.doubts]
    values = dict(stated.values) | {"gpu": kind.gpu.name}
    if "batch_size" in assumed:
        values["batch_size"] = RANKED_BATCH
    given: dict[str, Any] = {
        "precision": None if stated.trainer else config.assumed_precision or RANKED_PRECISION,
        "gpus": job.gpus,
        "gpus_per_node": max(1, min(job.gpus, kind.count if job.pods > 1 else job.gpus_per_pod)),
        "fabric": config.hardware.fabric,
        "source": site_source(config.site),
    }
    try:
        readable = replace(stated, values=values, problems=() if assumed else stated.problems)
        predicted = predictor.predict(readable.job(**given))
    except PrecisionTimeError as error:
        return TypeEstimate(kind, reason=str(error))
    return _shared(
        TypeEstimate(kind, predicted, gpu_fraction=job.gpu_fraction, assumed=tuple(assumed))
    )


def at_longest(predictor: Predictor, found: TypeEstimate) -> Sequence[TypeEstimate]:
    """The same with all that the job leaves open as it takes the longest, where that is known.

    In each precision that it may mean: which one takes the longest differs by the quantile.
    """
    if found.prediction is None or found.prediction.phases:
        return (found,)
    job, values = found.prediction.job, dict[str, Any]()
    options = dict(job.options)
    for name, value in (pair for one in found.prediction.assumptions for pair in one.longest):
        options.update(value if name == "options" else ())
        values[name] = value
    meant = [p for p in OTHER_PRECISIONS if p is Precision.FP32 or runs_natively(job.hardware, p)]
    values["options"] = tuple(options.items())
    longest = [found]
    for precision in meant if "precision" in values else [job.precision]:
        with suppress(PrecisionTimeError):
            predicted = predictor.predict(job.but(**values | {"precision": precision}))
            longest.append(_shared(replace(found, prediction=predicted)))
    return longest[1:] or longest


def _shared(found: TypeEstimate) -> TypeEstimate:
    """A prediction for whole GPUs as it is on the part of one that a job gets."""
    whole, slowdown = found.prediction, found.slowdown
    if whole is None or slowdown == 1:
        return found
    step_s, throughput = whole.step_s * slowdown, whole.throughput / slowdown
    return replace(found, prediction=replace(whole, step_s=step_s, throughput=throughput))


def request_of(namespace: str, job: PodJob, asked: str, **known: Any) -> JobRequest:
    """A job as similar runs are found by it; ``known`` are further fields of its request.

    Kubernetes knows no users: the namespace stands for the user and for the account.
    """
    known |= {"user": namespace, "account": namespace, "partition": job.queue, "script": job.script}
    return JobRequest(**known, **stated_fields(asked))


class SiteEstimates:
    """Estimates by what the site remembers; None for a job of which it knows nothing."""

    def __init__(self, memory: SiteMemory, predictor: Predictor, site: str = "") -> None:
        self._memory = memory
        self._physics = PhysicsView(predictor, site_source(site) or "")
        # Pods that are alike ask for the same.
        self.of = lru_cache(MAX_ESTIMATES)(self._of)

    def _of(self, job: JobRequest) -> Estimate | None:
        """The estimate of a job; None where neither its like has run nor physics speaks."""
        found = estimate_job(job, self._memory, self._physics if "model=" in job.asked else None)
        like = any(one.similarity in OWN for one in found.similar)
        return found if like or found.physics else None


def able(job: PodJob, found: Sequence[TypeEstimate]) -> frozenset[GpuType]:
    """The types with enough memory and all that the job's precision needs, as far as is known."""
    return frozenset(e.type for e in found if e.fits and unsupported(job, e.type) is None)


# What a GPU is worth to others, under `reserve`: mixed-precision training of a network of
# convolutions and one of matrix products, samples per GPU, on one GPU and on those of a node.
REFERENCES = (("resnet50", 128), ("bert-large", 8))

# Types whose worth differs by less than predictions are wrong count as equally good: then what else
# the scheduler looks at decides.
ALIKE = 0.9

Steps = Sequence[Sequence[GpuType]]
Values = dict[GpuType, float]


class Ranking:
    """Ranks GPU types by the policies of a configuration."""

    def __init__(self, predictor: Predictor, config: Config) -> None:
        self._predictor = predictor
        self._config = config
        self._worth = lru_cache(maxsize=None)(self._reference_speed)
        self._policies: Mapping[str, Callable[[Sequence[TypeEstimate]], Values]] = {
            "time": _speed,
            "cost": self._thrift,
            "energy": _frugality,
            "balanced": self._balanced,
            "reserve": self._reserved,
        }

    def steps(
        self,
        job: PodJob,
        found: Sequence[TypeEstimate],
        room: Callable[[GpuType], int],
        wanted: Collection[GpuType] = (),
    ) -> Steps:
        """The types from best to worst, those alike together; without a prediction none.

        First come those that have ``room`` for the whole job, then those with a precision it
        states, those whose memory is predicted to be enough, those that meet its deadline: what
        would refuse them were it certain; then those not ``wanted`` by others; then by the policy.
        """
        values = self._policies[job.scheduling_policy or self._config.prioritize.policy](found)
        tiers = dict[GpuType, tuple[bool, ...]]()
        for e in found:
            if values.get(e.type):
                total_s = e.total_s(self._config.filter.deadline_quantile)
                late = total_s is not None and total_s > (job.deadline_s or math.inf)
                runs, free = unsupported(job, e.type) is None, e.type not in wanted
                enough = room(e.type) >= job.gpus
                tiers[e.type] = (enough, runs, e.fits, not late, free)
        steps: list[list[GpuType]] = []
        for kind in sorted(tiers, key=lambda kind: (tiers[kind], values[kind]), reverse=True):
            first = steps[-1][0] if steps else None
            if first and tiers[kind] == tiers[first] and values[kind] >= ALIKE * values[first]:
                steps[-1].append(kind)
            else:
                steps.append([kind])
        return steps

    def _thrift(self, found: Sequence[TypeEstimate]) -> Values:
        """Runs per unit of money; nothing for a GPU without a price.

        A slice costs the part of its GPU's price that it is, for as many times longer.
        """
        prices = self._config.hardware.prices_per_gpu_hour
        predicted = ((e, e.prediction) for e in found if e.prediction is not None)
        priced = ((e, p, prices.get(p.job.hardware.name)) for e, p in predicted)
        return {e.type: e.slowdown / (p.step_s * cost) for e, p, cost in priced if cost is not None}

    def _balanced(self, found: Sequence[TypeEstimate]) -> Values:
        """The geometric mean of time and money, or of time and energy without prices."""
        other = self._thrift(found) or _frugality(found)
        return {t: math.sqrt(s * other[t]) for t, s in _speed(found).items() if t in other}

    def _reserved(self, found: Sequence[TypeEstimate]) -> Values:
        """Fast GPUs for those who gain: a job's own speed, weighed against others' loss.

        A job that gains as much from the fastest GPU as the reference jobs do ranks by speed; one
        that gains little ranks by what it keeps of its speed for what it leaves to others.
        """
        speed = _speed(found)
        worth = {t: self._worth(t.gpu.name) * t.mig_share / t.replicas for t in speed if t.gpu}
        if not worth:
            return speed
        top, low = max(worth, key=worth.__getitem__), min(worth, key=worth.__getitem__)
        gain, usual = speed[top] / speed[low], worth[top] / worth[low]
        entitled = 1.0 if usual <= 1 else min(1.0, max(0.0, (gain - 1) / (usual - 1)))
        fastest = max(speed.values())
        advantage = {t: speed[t] / worth[t] for t in worth}
        most = max(advantage.values())
        return {
            t: entitled * speed[t] / fastest + (1 - entitled) * advantage[t] / most for t in worth
        }

    def _reference_speed(self, gpu: str) -> float:
        """Geometric mean of the reference jobs' steps per second on a GPU."""
        steps, mixed = [], Precision.MIXED_FP16_FP32
        for (model, batch), gpus in product(REFERENCES, (1, 8)):
            try:
                job = TrainingJob(
                    model=model, precision=mixed, gpu=gpu, batch_size=batch, gpus=gpus
                )
                steps.append(self._predictor.predict(job).step_s)
            except PrecisionTimeError:
                continue
        return math.exp(-sum(map(math.log, steps)) / len(steps)) if steps else 1.0


def _speed(found: Sequence[TypeEstimate]) -> Values:
    """Runs per second."""
    return {e.type: 1 / e.step_s for e in found if e.step_s}


def _frugality(found: Sequence[TypeEstimate]) -> Values:
    """Runs per joule; a slice draws the part of its GPU's power that it is."""
    predicted = ((e, e.prediction) for e in found if e.prediction is not None)
    whole = ((e, replace(p, step_s=p.step_s / e.slowdown)) for e, p in predicted)
    return {e.type: 1 / energy_of(p, p.step_s).energy_j for e, p in whole}


# Constant texts: the scheduler counts nodes of equal text in the pod's event.
_FORMATS = ("bf16", "tf32", "fp8", "fp4")
PRECISION = {name: f"GPU has no {name.upper()} tensor cores" for name in _FORMATS}
MEMORY = "GPU has less memory than the pod states"
# What the user calls 80Gi is a card sold as 80 GB, which reports a little less.
NOMINAL = 0.9
DEADLINE = "predicted run time exceeds the deadline on this GPU"


def refusal(job: PodJob, estimate: TypeEstimate, config: Config) -> str | None:
    """The first rule that a job breaks on a GPU type, as a constant text; None where it may run.

    Only what the annotated pod itself says counts, never what we assume of it: its precision, the
    memory it needs, a deadline that it calls hard. Preempting other pods would not change any.
    """
    rules = config.filter
    if not job.annotated:
        return None
    if rules.precision and (text := unsupported(job, estimate.type)) is not None:
        return text
    size, need = estimate.type.memory_bytes, job.gpu_memory_bytes
    if rules.memory and size is not None and need is not None and size < NOMINAL * need:
        return MEMORY
    if not (rules.deadline and job.hard and job.deadline_s and estimate.prediction):
        return None
    if estimate.assumed or job.stated.trainer or job.stated.doubtful:
        return None
    # A deadline refuses only what is predicted well enough to be sure of.
    late = (estimate.total_s(rules.deadline_quantile) or 0.0) > job.deadline_s
    thin = too_thin([estimate.prediction], config.deadline.quantile, config.evidence)
    return DEADLINE if late and not thin else None


def unsupported(job: PodJob, kind: GpuType) -> str | None:
    """What a GPU type lacks for the precision that a job states; None for nothing."""
    precision, gpu = job.stated.values.get("precision"), kind.gpu
    if any(problem.field == "precision" for problem in job.stated.contradictions):
        return None
    if precision is None or gpu is None or runs_natively(gpu, precision):
        return None
    return PRECISION.get(capability(precision) or "")
