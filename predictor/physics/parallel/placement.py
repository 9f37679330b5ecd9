"""Which GPUs talk to each other, on how many nodes, and which splits no framework would start.

Megatron-LM's order of ranks: tensor parallelism innermost, then context, data and, outermost,
pipeline parallelism (Narayanan et al., arXiv 2104.04473); experts are spread over the ranks of
context and data parallelism (``parallel_state.initialize_model_parallel``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from ...errors import JobError
from ...graphs.catalog import ModelEntry, graph_of, overrides
from ...job.fabrics import node_of
from ...job.training_job import TrainingJob
from ..job_graph import dimension, workload


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs of one collective, spread evenly over nodes (racks, where a rack is one domain)."""

    gpus: int
    nodes: int

    @property
    def in_node(self) -> int:
        """GPUs of the group on one node."""
        return ceil(self.gpus / self.nodes)


@dataclass(frozen=True, slots=True)
class Placement:
    """The groups one GPU belongs to.

    ``data`` reduces gradients: replicas and their context-parallel ranks. ``expert_data`` does so
    for experts, which fewer GPUs hold in copies. ``next_stage`` are the two GPUs of a boundary
    between pipeline stages, of those that stand farthest apart.
    """

    tensor: Group
    context: Group
    expert: Group
    data: Group
    expert_data: Group
    next_stage: Group


def place(job: TrainingJob) -> Placement:
    """The groups of a job whose ranks fill one node after another."""
    tensor, context = job.tensor_parallel, job.context_parallel
    stage = job.gpus // job.pipeline_parallel
    replicas = job.data_parallel * context
    data_stride, hop = tensor, stage
    if job.software.data_outermost:
        data_stride, hop = tensor * job.pipeline_parallel, tensor * context
    experts = expert_tensor_parallel(job) * job.expert_parallel
    return Placement(
        tensor=_group(job, tensor, 1),
        context=_group(job, context, tensor),
        expert=_group(job, job.expert_parallel, expert_tensor_parallel(job)),
        data=_group(job, replicas, data_stride),
        expert_data=_group(job, max(1, stage // experts), experts),
        next_stage=Group(2, 2 if hop * job.pipeline_parallel > island(job) else 1),
    )


def expert_tensor_parallel(job: TrainingJob) -> int:
    """GPUs one expert is split over; that of the other layers unless stated."""
    return job.software.expert_tensor_parallel or job.tensor_parallel


def island(job: TrainingJob) -> int:
    """GPUs joined by NVLink or its like: those of a node, or of a rack that is one domain."""
    node = node_of(job.gpu)
    return job.gpus_per_node if node.domain == node.gpus_per_node else node.domain


def _group(job: TrainingJob, size: int, stride: int) -> Group:
    together = max(1, min(size, island(job) // stride))
    return Group(size, ceil(size / together))


def expert_share(job: TrainingJob, entry: ModelEntry) -> float:
    """Share of a GPU's weights that are experts', from the graph with and without the spread."""
    spread = job.expert_parallel
    if spread == 1:
        return 0.0
    work, changes = workload(job, entry), overrides(entry, job.variant)
    here = graph_of(entry.name, changes, work).parameters
    alone = graph_of(entry.name, changes, replace(work, expert_parallel=1)).parameters
    return max(0.0, (alone - here) / (spread - 1) / here)


ENDS = 2  # the embedding and the loss may fill a chunk each


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
    if layers < stages:
        _refuse("pipeline_parallel", stages, f"at most the {layers} layers of {entry.name}")
    if layers + ENDS < stages * virtual:
        _refuse("virtual_stages", virtual, f"at most the {layers // stages} layers of a stage")


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
