"""The order of GPU types for a job, by which extender and admission place alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from predictor.errors import PrecisionTimeError
from predictor.estimate.core import Predictor
from predictor.estimate.limits import EvidenceRule, too_thin
from predictor.job.precision import Precision, capability, runs_natively
from predictor.job.training_job import TrainingJob
from predictor.planning.energy import energy_of

from .config import Config
from .estimate import TypeEstimate
from .records import GpuType, NodeRefusal, PodJob

# What a GPU is worth to others, under `reserve`: mixed-precision training of a network of
# convolutions and one of matrix products, samples per GPU.
REFERENCES = (("resnet50", 128), ("bert-large", 8))

# Types whose worth differs by less than predictions are wrong count as equally good: then what else
# the scheduler looks at decides.
ALIKE = 0.9

Tier = tuple[bool, ...]
Steps = Sequence[Sequence[GpuType]]


class Ranking:
    """Ranks GPU types by the policies of a configuration."""

    def __init__(self, predictor: Predictor, config: Config) -> None:
        self._predictor = predictor
        self._config = config
        self._worth = lru_cache(maxsize=None)(self._reference_speed)

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
        would refuse them were it certain; then those not ``wanted`` by others. The policy ranks the
        rest.
        """
        name = job.scheduling_policy or self._config.prioritize.policy
        values = self._policies()[name](found)
        tiers = {
            e.type: (*self._tier(job, e, room), e.type not in wanted)
            for e in found
            if values.get(e.type)
        }
        ranked = sorted(tiers, key=lambda kind: (tiers[kind], values[kind]), reverse=True)
        steps: list[list[GpuType]] = []
        for kind in ranked:
            first = steps[-1][0] if steps else kind
            alike = tiers[kind] == tiers[first] and values[kind] >= ALIKE * values[first]
            if steps and alike:
                steps[-1].append(kind)
            else:
                steps.append([kind])
        return steps

    def _tier(self, job: PodJob, found: TypeEstimate, room: Callable[[GpuType], int]) -> Tier:
        total_s = found.total_s(self._config.filter.deadline_quantile)
        late = job.deadline_s is not None and total_s is not None and total_s > job.deadline_s
        enough = room(found.type) >= job.gpus
        return enough, unsupported(job, found.type) is None, found.fits, not late

    def _policies(self) -> Mapping[str, Callable[[Sequence[TypeEstimate]], dict[GpuType, float]]]:
        return {
            "time": self._speed,
            "cost": self._thrift,
            "energy": self._frugality,
            "balanced": self._balanced,
            "reserve": self._reserved,
        }

    def _speed(self, found: Sequence[TypeEstimate]) -> dict[GpuType, float]:
        """Runs per second."""
        return {e.type: 1 / e.step_s for e in found if e.step_s}

    def _thrift(self, found: Sequence[TypeEstimate]) -> dict[GpuType, float]:
        """Runs per unit of money; nothing for a GPU without a price.

        A slice costs the part of its GPU's price that it is, for as many times longer.
        """
        prices = self._config.hardware.prices_per_gpu_hour
        predicted = ((e, e.prediction) for e in found if e.prediction is not None)
        priced = ((e, p, prices.get(p.job.hardware.name)) for e, p in predicted)
        return {e.type: e.slowdown / (p.step_s * cost) for e, p, cost in priced if cost is not None}

    def _frugality(self, found: Sequence[TypeEstimate]) -> dict[GpuType, float]:
        """Runs per joule; a slice draws the part of its GPU's power that it is."""
        predicted = ((e, e.prediction) for e in found if e.prediction is not None)
        whole = ((e, replace(p, step_s=p.step_s / e.slowdown)) for e, p in predicted)
        return {e.type: 1 / energy_of(p, p.step_s).energy_j for e, p in whole}

    def _balanced(self, found: Sequence[TypeEstimate]) -> dict[GpuType, float]:
        """The geometric mean of time and money, or of time and energy without prices."""
        other = self._thrift(found) or self._frugality(found)
        return {t: math.sqrt(s * other[t]) for t, s in self._speed(found).items() if t in other}

    def _reserved(self, found: Sequence[TypeEstimate]) -> dict[GpuType, float]:
        """Fast GPUs for those who gain: a job's own speed, weighed against others' loss.

        A job that gains as much from the fastest GPU as the reference jobs do ranks by speed; one
        that gains little ranks by what it keeps of its speed for what it leaves to others.
        """
        speed = self._speed(found)
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
        """Geometric mean of the reference jobs' steps per second on one GPU."""
        steps = []
        for model, batch in REFERENCES:
            try:
                job = TrainingJob(
                    model=model, precision=Precision.MIXED_FP16_FP32, gpu=gpu, batch_size=batch
                )
                steps.append(self._predictor.predict(job).step_s)
            except PrecisionTimeError:
                continue
        return math.exp(-sum(map(math.log, steps)) / len(steps)) if steps else 1.0


# Constant texts: the scheduler counts nodes of equal text in the pod's event.
PRECISION = {
    "bf16": "GPU has no BF16 tensor cores",
    "tf32": "GPU has no TF32 tensor cores",
    "fp8": "GPU has no FP8 tensor cores",
    "fp4": "GPU has no FP4 tensor cores",
}
MEMORY = "GPU has less memory than the pod states"
# Devices report a little less than they are sold with.
NOMINAL = 0.9
DEADLINE = "predicted run time exceeds the deadline on this GPU"


def refusal(job: PodJob, estimate: TypeEstimate, config: Config) -> NodeRefusal | None:
    """The first rule that a job breaks on a GPU type; None where it may run.

    Only what the annotated pod itself says counts, never what we assume of it: its precision, the
    memory it needs, a deadline that it calls hard.
    """
    rules = config.filter
    if not job.annotated:
        return None
    if rules.precision and (text := unsupported(job, estimate.type)) is not None:
        return NodeRefusal(text)
    if rules.memory and _too_small(job, estimate):
        return NodeRefusal(MEMORY)
    if rules.deadline and job.hard and _late(job, estimate, config):
        return NodeRefusal(DEADLINE)
    return None


def unsupported(job: PodJob, kind: GpuType) -> str | None:
    """What a GPU type lacks for the precision that a job states; None for nothing."""
    precision, gpu = job.stated.values.get("precision"), kind.gpu
    if any(problem.field == "precision" for problem in job.stated.contradictions):
        return None
    if precision is None or gpu is None or runs_natively(gpu, precision):
        return None
    return PRECISION.get(capability(precision) or "")


def _too_small(job: PodJob, estimate: TypeEstimate) -> bool:
    """What the user calls 80Gi is a card sold as 80 GB: a tenth less is not too small."""
    size, need = estimate.type.memory_bytes, job.gpu_memory_bytes
    return size is not None and need is not None and size < NOMINAL * need


def _late(job: PodJob, estimate: TypeEstimate, config: Config) -> bool:
    """A deadline refuses only what is predicted well enough to be sure of."""
    total = estimate.total_s(config.filter.deadline_quantile)
    if job.deadline_s is None or total is None or estimate.prediction is None:
        return False
    if estimate.assumed or job.stated.trainer or job.stated.contradictions:
        return False
    return total > job.deadline_s and too_thin([estimate.prediction], evidence(config)) is None


def evidence(config: Config) -> EvidenceRule:
    """What of the configuration says when a prediction is too thin."""
    return EvidenceRule(
        quantile=config.deadline.quantile,
        max_interval_ratio=config.evidence.max_interval_ratio,
        refused_tiers=frozenset(config.evidence.refused_tiers),
    )
