"""The optimizer step: its traffic, and the launches it takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

import profiles

from .autocast import TypedOperator
from .formats import LOW_ACTIVATIONS, LOW_WEIGHTS
from .graphs.operator import Direction, Kind, Operator
from .job import TrainingJob
from .operator_time import OperatorTimes
from .precision import Dtype

# Frameworks that step with one multi-tensor kernel whatever the recipe calls it: apex FusedAdam in
# Megatron-LM and NeMo, flat parameters under FSDP in llm-foundry.
FUSED_BY_DEFAULT = LOW_WEIGHTS | LOW_ACTIVATIONS
FUSED_LAUNCHES = 0.05  # per weight tensor, as the fused entries of optimizers.yaml
UNSCALE_BYTES = 8  # a gradient read and written


@cache
def _optimizers() -> Mapping[str, Mapping[str, float]]:
    path = Path(profiles.__file__).parent / "optimizers.yaml"
    rules: Mapping[str, Mapping[str, float]] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return rules


def optimizer_rule(name: str) -> Mapping[str, float]:
    """Traffic and launches of an optimizer; an unknown name is priced as its nearest known part."""
    rules = _optimizers()
    key = name.lower().replace("_", "").replace("-", "")
    if key in rules:
        return rules[key]
    known = [rule for rule in rules if rule in key]
    return rules[max(known, key=len)] if known else rules["adam"]


def update_seconds(
    operators: OperatorTimes, job: TrainingJob, rule: Mapping[str, float], weights: float
) -> float:
    """Device seconds of the update of ``weights`` elements, those of one shard."""
    per_weight = rule["bytes_per_parameter"] + UNSCALE_BYTES * job.precision.mixed
    update = Operator(Kind.OPTIMIZER, Direction.UPDATE, (1, int(weights)), 0.0, weights, weights)
    typed = TypedOperator(update, Dtype.FP32, weights * per_weight, False)
    return float(operators.seconds(job.hardware, [typed])[0])


def update_launches(job: TrainingJob, rule: Mapping[str, float], tensors: float) -> float:
    """Device launches of the update of ``tensors`` weight tensors."""
    each = rule["launches_per_tensor"]
    if job.framework in FUSED_BY_DEFAULT:
        each = min(each, FUSED_LAUNCHES)
    return tensors * (each + FUSED_LAUNCHES * job.precision.mixed)
