"""The optimizer step: its traffic, and the launches it takes."""

from __future__ import annotations

from profiles.gpus import CPU

from ..graphs.catalog import ModelEntry
from ..graphs.families.stored import find_traced
from ..graphs.operator import Direction, Kind, Operator
from ..job.frameworks import PYTORCH
from ..job.precision import Dtype
from ..job.software import TRACED, OptimizerRule, optimizer_named, optimizer_rules
from ..job.training_job import TrainingJob
from .autocast import TypedOperator
from .job_graph import LOW_ACTIVATIONS, LOW_WEIGHTS, storage_of
from .operator_time import OperatorTimes

# Frameworks that step with one multi-tensor kernel whatever the recipe calls it: apex FusedAdam in
# Megatron-LM and NeMo, flat parameters under FSDP in llm-foundry.
FUSED_BY_DEFAULT = LOW_WEIGHTS | LOW_ACTIVATIONS
FUSED_LAUNCHES = 0.05  # per weight tensor, as the fused entries of optimizers.yaml
LISTS_SINCE = 2023.2  # PyTorch 2.0 runs each operation of torch.optim over lists of tensors
BYTES_OF_LAUNCH = 10  # per weight, FP32, where launches are not fused: 1.5 tensors read, 1 written
# A tensor-by-tensor AdamW takes 76 us and SGD 14 us for a tensor of 64 elements, where an addition
# takes 2.5 us (Xeon, 2 GHz, torch 2.13): so many launches more for each that moves something.
SMALL_LAUNCHES = 2.0
# Root of the second moment, and its quotient by the bias correction; of rules with this much state.
NEW_TENSORS, TWO_MOMENTS = ("sqrt", "div"), 8
UNSCALE_BYTES = 8  # a gradient read and written
SPELLS_OUT = "tensorflow1"  # runs a kernel for each operation that BERT's optimizers are written in


def optimizer_rule(name: str) -> OptimizerRule:
    """Traffic and launches of an optimizer, that of a traced network by its name; else Adam's."""
    if TRACED in name:
        found = find_traced(name)
        if found is None or (update := found.model.update) is None:
            return optimizer_rules()["adam"]
        sizes = update.bytes_per_parameter, update.state_bytes_per_parameter
        return OptimizerRule(*sizes, update.launches_per_tensor)
    return optimizer_rules()[optimizer_named(name)]


def rule_of(job: TrainingJob, entry: ModelEntry) -> OptimizerRule:
    """What updates the weights of a job: the optimizer it states, else its network's own."""
    return optimizer_rule(job.optimizer or entry.optimizer if job.software.updates else "none")


def update_seconds(
    operators: OperatorTimes, job: TrainingJob, rule: OptimizerRule, weights: float, tensors: float
) -> float:
    """Device seconds of the update of ``weights`` elements in ``tensors``, those of one shard."""
    moved = rule.spelt_out_bytes if job.framework == SPELLS_OUT else 0.0
    if not (job.software.fused_update or job.shards.startswith("zero")):  # DeepSpeed's FusedAdam
        moved = rule.eager_bytes
    per_weight = (moved or rule.bytes_per_parameter) + UNSCALE_BYTES * job.precision.mixed
    per_weight *= storage_of(job).state_scale
    if job.hardware.kind == CPU:
        updates = _one_by_one(rule, weights, tensors)
    else:
        updates = (_update(weights, per_weight, 1.0),)
    return operators.total_s(job.hardware, updates)


def _one_by_one(rule: OptimizerRule, weights: float, tensors: float) -> tuple[TypedOperator, ...]:
    """Updates as a CPU runs them: tensor by tensor, each launch with its own traffic.

    Half the tensors are matrices, which hold the weights; the others are biases and norms, next to
    nothing. Python and what it computes with single numbers are launches without traffic. The root
    and the quotient of a rule with two moments (Adam and its kin) are new tensors.
    """
    new = NEW_TENSORS if rule.state_bytes_per_parameter >= TWO_MOMENTS else ()
    matrices, each = tensors / 2, rule.launches_per_tensor
    in_place = max(each - len(new), 0.0)
    moved = max(rule.bytes_per_parameter, BYTES_OF_LAUNCH * each)
    per_weight = moved - BYTES_OF_LAUNCH * len(new)
    return (
        _update(weights, per_weight, in_place * matrices),
        *(_update(weights, 2 * Dtype.FP32.bytes, matrices, function) for function in new),
        _update(0.0, per_weight, each * (matrices + SMALL_LAUNCHES * tensors)),
    )


def _update(weights: float, per_weight: float, launches: float, new: str = "") -> TypedOperator:
    """Launches that move ``per_weight`` bytes of each weight; ``new`` makes a new tensor."""
    kind, size = Kind.ELEMENTWISE if new else Kind.OPTIMIZER, (1, int(weights))
    moved = (0.0, weights, weights, launches)
    update = Operator(kind, Direction.UPDATE, size, *moved, function=new)
    return TypedOperator(update, Dtype.FP32, weights * per_weight, False)


def update_launches(job: TrainingJob, rule: OptimizerRule, tensors: float) -> float:
    """Device launches of the update of ``tensors`` weight tensors."""
    each = rule.launches_per_tensor
    if job.framework in FUSED_BY_DEFAULT:
        each = min(each, FUSED_LAUNCHES)
    elif job.framework == PYTORCH and job.software.date >= LISTS_SINCE:  # Muon's are matrices
        each *= FUSED_LAUNCHES if rule.eager_bytes or not rule.state_bytes_per_parameter else 1
    return tensors * (each + FUSED_LAUNCHES * job.precision.mixed)
