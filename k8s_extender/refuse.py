"""Why a GPU type cannot take a job: the filter's rules, which rest on stated facts alone."""

from __future__ import annotations

from predictor.estimate.limits import EvidenceRule, too_thin
from predictor.job.precision import capability, runs_natively

from .config import Config
from .estimate import TypeEstimate
from .records import GpuType, NodeRefusal, PodJob

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
    if estimate.assumed:
        return False
    return total > job.deadline_s and too_thin([estimate.prediction], evidence(config)) is None


def evidence(config: Config) -> EvidenceRule:
    """What of the configuration says when a prediction is too thin."""
    return EvidenceRule(
        quantile=config.deadline.quantile,
        max_interval_ratio=config.evidence.max_interval_ratio,
        refused_tiers=frozenset(config.evidence.refused_tiers),
    )
