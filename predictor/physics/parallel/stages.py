"""Pipeline stages: how many layers each has, and how long a step over them takes.

1F1B and its interleaved form, Narayanan et al. arXiv 2104.04473: of a step of m micro-steps on p
stages a share (p-1)/m is idle, (p-1)/(m v) where each stage holds v chunks of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...job.training_job import TrainingJob


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Seconds of a step on the stage that has most to do: at work, and waiting for others."""

    busy_s: float
    bubble_s: float


def pipeline(stages: Sequence[float], micro_steps: int, virtual: int = 1) -> Pipeline:
    """From the seconds that each stage needs for one micro-step.

    The slowest stage is busy all the time but while the pipeline fills and drains, when the first
    micro-step passes forward and the last one back through all other stages (through one chunk of
    each where there are ``virtual`` ones).
    """
    slowest = max(stages)
    return Pipeline(slowest * micro_steps, (sum(stages) - slowest) / virtual)


def layer_shares(job: TrainingJob, layers: int) -> tuple[float, ...]:
    """Share of the layers on each stage; they add up to 1.

    Even unless options of Megatron-LM count the embedding and the loss as a layer, or state how
    many layers the first and the last stage have.
    """
    stages = job.pipeline_parallel
    if stages == 1:
        return (1.0,)
    software = job.software
    first, last = software.embedding_is_layer, software.loss_is_layer
    each = (layers + first + last) / stages
    ends = [
        float(software.first_stage_layers or each - first),
        float(software.last_stage_layers or each - last),
    ]
    between = (layers - sum(ends)) / max(1, stages - 2)
    held = [ends[0], *[between] * (stages - 2), ends[1]]
    return tuple(share / sum(held) for share in held)


def virtual_stages(job: TrainingJob, layers: int) -> int:
    """Chunks of layers on each stage: the job's field, or one of Megatron-LM's two options."""
    if job.virtual_stages > 1 or job.pipeline_parallel == 1:
        return job.virtual_stages
    software = job.software
    if software.chunks_per_stage:
        return software.chunks_per_stage
    if each := software.layers_per_chunk:
        return max(1, layers // (job.pipeline_parallel * each))
    return 1
