"""In which format activations, weights, gradients and optimizer state are stored and sent."""

from __future__ import annotations

from dataclasses import dataclass

from ..job.precision import Precision
from ..job.training_job import TrainingJob

FULL = 4  # bytes of an FP32 element

# Frameworks that keep weights in the lower format beside FP32 masters instead of casting FP32
# weights under autocast (Megatron-LM and NeMo: --bf16 / --fp16, Float16Module).
LOW_WEIGHTS = frozenset({"megatron", "nemo"})
# FSDP with mixed_precision PURE, low_precision_layernorm and fused_crossentropy, the defaults of
# llm-foundry's training recipes: FP32 shards, every activation and the loss in the lower format.
LOW_ACTIVATIONS = frozenset({"llm-foundry"})


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of one stored element, by what it is.

    ``activation`` behind a matrix product, ``saved_input`` of a linear layer (1 in FP8, FP4), and
    ``full`` behind an operator that autocast runs in FP32: ``activation`` where the framework keeps
    everything in the lower format. ``autocast`` says whether FP32 weights are cast; ``master`` are
    the bytes of an FP32 copy of the weights, ``state_scale`` shrinks optimizer state held in
    the lower format too; ``upcast_gradient`` is an FP32 gradient made for the optimizer step.
    ``loss`` is the format of the log-softmax, whose gradient may be computed in its place.
    """

    activation: int
    saved_input: int
    full: int
    weight: int
    gradient: int
    master: int = 0
    state_scale: float = 1.0
    autocast: bool = False
    upcast_gradient: int = 0
    loss: int = FULL
    loss_in_place: bool = False


def storage_of(job: TrainingJob) -> Storage:
    """The formats a job keeps its tensors in: by precision, framework and apex level."""
    low = job.precision.activation_dtype.bytes
    saved = job.precision.matmul_dtype.bytes
    if not job.precision.mixed:
        return Storage(low, low, low, low, low, state_scale=low / FULL, loss=low)
    if job.framework in LOW_WEIGHTS:
        # --accumulate-allreduce-grads-in-fp32 is forced for bf16; fp16 main gradients are cast to
        # FP32 when the optimizer steps.
        half = job.precision in (Precision.MIXED_FP16_FP32, Precision.MIXED_FP8_FP16)
        gradient = low if half else FULL
        return Storage(
            low,
            saved,
            low,
            low,
            gradient,
            master=FULL,
            upcast_gradient=FULL if half else 0,
            loss_in_place=True,
        )
    if job.framework in LOW_ACTIVATIONS:
        return Storage(low, saved, low, FULL, FULL, loss=low, loss_in_place=True)
    if job.software.half_weights:
        return Storage(low, saved, low, low, low, master=FULL, upcast_gradient=FULL)
    return Storage(low, saved, FULL, FULL, FULL, autocast=True)
