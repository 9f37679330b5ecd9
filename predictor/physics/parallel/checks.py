"""Splits that no framework would start: layers, heads or experts that do not divide evenly."""

from __future__ import annotations

from ...errors import JobError
from ...graphs.catalog import ModelEntry
from ...job.training_job import TrainingJob
from ..job_graph import dimension
from .placement import expert_tensor_parallel


def check_split(job: TrainingJob, entry: ModelEntry) -> None:
    """Raise JobError, naming field, value and what is accepted, for a split that cannot be."""
    _check_layers(job, entry)
    heads, length = dimension(job, entry, "heads"), job.seq_len or entry.seq_len or 0
    if heads % job.tensor_parallel:
        divisor = f"a divisor of the {heads} heads of {entry.name}"
        _refuse("tensor_parallel", job.tensor_parallel, divisor)
    if length % job.context_parallel:
        _refuse("context_parallel", job.context_parallel, f"a divisor of {length} tokens")
    if job.expert_parallel > 1:
        _check_experts(job, entry)


def _check_layers(job: TrainingJob, entry: ModelEntry) -> None:
    layers = dimension(job, entry, "layers")
    if not layers or job.software.layers_by_hand:
        return
    stages, virtual = job.pipeline_parallel, job.virtual_stages
    if layers % stages:
        divisor = f"a divisor of the {layers} layers of {entry.name}"
        _refuse("pipeline_parallel", stages, f"{divisor}, or an option that places them by hand,")
    if layers // stages % virtual:
        _refuse("virtual_stages", virtual, f"a divisor of the {layers // stages} layers of a stage")


def _check_experts(job: TrainingJob, entry: ModelEntry) -> None:
    spread, experts = job.expert_parallel, dimension(job, entry, "experts")
    if not experts:
        _refuse("expert_parallel", spread, f"1: {entry.name} has no experts")
    if experts % spread:
        _refuse("expert_parallel", spread, f"a divisor of the {experts} experts of {entry.name}")
    ranks = job.gpus // job.pipeline_parallel
    if ranks % (spread * expert_tensor_parallel(job)):
        _refuse("expert_parallel", spread, f"with its tensor split a divisor of {ranks} GPUs")


def _refuse(field: str, value: int, accepted: str) -> None:
    raise JobError(field, value, f"expected {accepted}")


def split_warnings(job: TrainingJob) -> tuple[str, ...]:
    """One sentence for each: the transfers of what is moved to the host are not priced."""
    asked = {s.reason for s in job.software.settings if s.name.startswith("offloads") and s.value}
    return tuple(
        f"{reason} moves data to host memory: that is counted, the time it takes is not"
        for reason in sorted(asked)
    )
