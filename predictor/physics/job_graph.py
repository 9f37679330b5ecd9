"""The graph a job runs on one GPU: what it asks of the builder, and in which formats."""

from __future__ import annotations

from dataclasses import replace

from ..graphs.catalog import ModelEntry, graph_of, overrides
from ..graphs.operator import Graph, Kind, Operator
from ..graphs.workload import Workload
from ..job.training_job import TrainingJob
from .autocast import TypedOperator, autocast, runnable
from .formats import LOW_WEIGHTS, storage_of
from .lowering import lowered

# Share of a 512-token BERT batch that is not padding: about half (Krell et al., arXiv 2107.02027).
UNPADDED = 0.5
# Norms read and write the format of what flows, whatever they compute in, where the framework
# keeps everything in the lower one.
STORED_LOW = frozenset({Kind.LAYER_NORM, Kind.SOFTMAX, Kind.EMBEDDING})


def job_graph(job: TrainingJob, entry: ModelEntry) -> Graph:
    """The operators of one micro-step of the whole network, not cut into pipeline stages."""
    return graph_of(entry.name, overrides(entry, job.variant), workload(job, entry))


def job_operators(job: TrainingJob, graph: Graph) -> tuple[TypedOperator, ...]:
    """The operators of a graph in the formats, layouts and fusions of the job's framework."""
    typed = autocast(graph, runnable(job.precision, job.hardware), job.hardware)
    return lowered(job, _stored(job, typed))


def _stored(job: TrainingJob, typed: tuple[TypedOperator, ...]) -> tuple[TypedOperator, ...]:
    """The operators with norms in the lower format, where the framework keeps everything there."""
    low = job.precision.activation_dtype
    if not job.precision.mixed or storage_of(job).full != low.bytes:
        return typed
    return tuple(
        replace(t, dtype=low, bytes=(t.operator.reads + t.operator.writes) * low.bytes)
        if t.operator.kind in STORED_LOW or _traced(t.operator)
        else t
        for t in typed
        if not (t.operator.kind is Kind.CAST and t.operator.function)
    )


def _traced(operator: Operator) -> bool:
    """Whether this is pointwise work of a trace, which autocast would price by its function."""
    return operator.kind is Kind.ELEMENTWISE and operator.origins is not None


def workload(job: TrainingJob, entry: ModelEntry) -> Workload:
    """The micro-batch of a job, completed by the defaults of the catalog entry."""
    seq_len = job.seq_len or entry.seq_len
    if job.mean_seq_len:
        seq_len = job.mean_seq_len
    elif seq_len and job.software.unpadded:
        seq_len = max(1, int(seq_len * UNPADDED))
    if seq_len and job.context_parallel > 1:
        seq_len = max(1, seq_len // job.context_parallel)
    return Workload(
        batch_size=job.micro_batch_size,
        seq_len=seq_len,
        image_size=job.image_size or entry.image_size,
        flash_attention=job.software.fused_attention,
        fused_layers=job.framework in LOW_WEIGHTS,
        tensor_parallel=job.tensor_parallel,
        sequence_parallel=job.sequence_parallel,
        context_parallel=job.context_parallel,
        expert_parallel=job.expert_parallel,
    )


def dimension(job: TrainingJob, entry: ModelEntry, key: str) -> int:
    """A size of the network as the job has it, 0 where it is no number."""
    changes = dict(overrides(entry, job.variant))
    value = changes.get(key, entry.architecture.get(key, 0))
    return int(value) if str(value).isdigit() else 0
