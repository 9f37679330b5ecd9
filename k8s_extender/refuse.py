"""Why a GPU type cannot take a job: the filter's rules."""

from __future__ import annotations

from predictor.estimate.fits import least_memory
from predictor.estimate.limits import EvidenceRule, too_thin
from predictor.job.native import capability, runs_natively

from .config import Config
from .estimate import TypeEstimate
from .records import NodeRefusal, PodJob

# Constant texts: the scheduler counts nodes of equal text in the pod's event.
PRECISION = {
    "bf16": "GPU has no BF16 tensor cores",
    "tf32": "GPU has no TF32 tensor cores",
    "fp8": "GPU has no FP8 tensor cores",
}
MEMORY = "predicted memory does not fit the GPU"
DEADLINE = "predicted run time exceeds the deadline on this GPU"


def refusal(job: PodJob, estimate: TypeEstimate, config: Config) -> NodeRefusal | None:
    """The first rule that a job breaks on a GPU type; None where it may run."""
    rules = config.filter
    if rules.precision and (found := _precision(job, estimate)):
        return found
    if rules.memory and _too_large(estimate, rules.memory_tolerance):
        return NodeRefusal(MEMORY)
    if rules.deadline and _late(job, estimate, config):
        return NodeRefusal(DEADLINE)
    return None


def _precision(job: PodJob, estimate: TypeEstimate) -> NodeRefusal | None:
    precision, gpu = job.stated.values.get("precision"), estimate.type.gpu
    if precision is None or gpu is None or runs_natively(gpu, precision):
        return None
    text = PRECISION.get(capability(precision) or "")
    return None if text is None else NodeRefusal(text)


def _too_large(estimate: TypeEstimate, tolerance: float) -> bool:
    """Memory refuses what exceeds the device however lean all is that the job does not state.

    And by more than such predictions are wrong.
    """
    if estimate.prediction is None:
        return False
    need = least_memory(estimate.prediction.job)
    size = estimate.type.memory_bytes or estimate.prediction.job.hardware.memory_bytes
    return need.allocated_bytes > (size - need.framework_bytes) * (1 + tolerance)


def _late(job: PodJob, estimate: TypeEstimate, config: Config) -> bool:
    """A deadline refuses only what is predicted well enough to be sure of."""
    total = estimate.total_s(config.filter.deadline_quantile)
    if job.deadline_s is None or total is None or estimate.prediction is None:
        return False
    return total > job.deadline_s and too_thin([estimate.prediction], evidence(config)) is None


def evidence(config: Config) -> EvidenceRule:
    """What of the configuration says when a prediction is too thin."""
    return EvidenceRule(
        quantile=config.deadline.quantile,
        max_interval_ratio=config.evidence.max_interval_ratio,
        refused_tiers=frozenset(config.evidence.refused_tiers),
    )
