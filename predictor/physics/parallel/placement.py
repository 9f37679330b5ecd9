"""Which GPUs talk to each other, on how many nodes, and which splits no framework would start.

Megatron-LM's order of ranks: tensor parallelism innermost, then context, data and, outermost,
pipeline parallelism (Narayanan et al., arXiv 2104.04473); experts are spread over the ranks of
context and data parallelism (``parallel_state.initialize_model_parallel``).
"""

from __future__ import annotations

from collections.abc import Iterator
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
    experts = job.expert_split * job.expert_parallel
    return Placement(
        tensor=_group(job, tensor, 1),
        context=_group(job, context, tensor),
        expert=_group(job, job.expert_parallel, job.expert_split),
        data=_group(job, replicas, data_stride),
        expert_data=_group(job, max(1, stage // experts), experts),
        next_stage=Group(2, 2 if hop * job.pipeline_parallel > island(job) else 1),
    )


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
    for wrong, name, accepted in _rules(job, entry):
        if wrong:
            raise JobError(name, getattr(job, name), f"expected {accepted}")


def _rules(job: TrainingJob, entry: ModelEntry) -> Iterator[tuple[bool, str, str]]:
    """Whether a split is wrong, its field, and what is accepted."""
    layers, stages = dimension(job, entry, "layers"), job.pipeline_parallel
    if layers and not job.software.layers_by_hand:
        yield layers < stages, "pipeline_parallel", f"at most the {layers} layers of {entry.name}"
        many = layers + ENDS < stages * job.virtual_stages
        yield many, "virtual_stages", f"at most the {layers // stages} layers of a stage"
    elif layers and not job.software.stage_layout:
        ends = [n for n in (job.software.first_stage_layers, job.software.last_stage_layers) if n]
        few = layers + ENDS - sum(ends) < stages - len(ends)
        stand = f"of the {layers} layers of {entry.name} {sum(ends)} stand on the first and last"
        yield few, "pipeline_parallel", f"a layer for each stage: {stand}"
    heads, length = dimension(job, entry, "heads"), job.seq_len or entry.seq_len or 0
    divisor = f"a divisor of the {heads} heads of {entry.name}"
    yield bool(heads % job.tensor_parallel), "tensor_parallel", divisor
    yield bool(length % job.context_parallel), "context_parallel", f"a divisor of {length} tokens"
    if (spread := job.expert_parallel) > 1:
        name, experts = "expert_parallel", dimension(job, entry, "experts")
        yield not experts, name, f"1: {entry.name} has no experts"
        yield bool(experts % spread), name, f"a divisor of the {experts} experts of {entry.name}"
        ranks = job.gpus // stages
        divisor = f"with its tensor split a divisor of {ranks} GPUs"
        yield bool(ranks % (spread * job.expert_split)), name, divisor
