"""The graph a job runs on one GPU: what it asks of the builder, then formats, layouts, fusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

from profiles.gpus import CPU, Gpu, find_gpu

from ..graphs.catalog import ModelEntry, entry_of, find_entry, graph_of, overrides
from ..graphs.operator import (
    FORWARD,
    READ_BACK,
    VOCABULARY,
    WIDE,
    Direction,
    Graph,
    Kind,
    Operator,
    Workload,
)
from ..job.frameworks import PYTORCH
from ..job.precision import Dtype, Precision
from ..job.training_job import TrainingJob
from .autocast import TypedOperator, autocast, runnable

FULL = 4  # bytes of an FP32 element
SPELT_NORM = "spelt_rms_norm"  # the rest of an RMS norm that eager code spells out
ANY_AXES = ("tensorflow", "jax")  # whose convolutions over any number of axes take channels last

# Frameworks that keep weights in the lower format beside FP32 masters instead of casting FP32
# weights under autocast (Megatron-LM and NeMo: --bf16 / --fp16, Float16Module).
LOW_WEIGHTS = frozenset({"megatron", "nemo"})
# FSDP with mixed_precision PURE, low_precision_layernorm and fused_crossentropy, the defaults of
# llm-foundry's training recipes: FP32 shards, every activation and the loss in the lower format.
LOW_ACTIVATIONS = frozenset({"llm-foundry", "jax"})
# DeepSpeed casts the network itself and shards FP32 masters (runtime/bf16_optimizer.py).
LOW_NETWORK = frozenset({"zero1", "zero2"})


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
        cast = FULL if half else 0
        kept = Storage(low, saved, low, low, gradient, FULL, upcast_gradient=cast)
        return replace(kept, loss_in_place=True)
    if job.framework in LOW_ACTIVATIONS:
        return Storage(low, saved, low, FULL, FULL, loss=low, loss_in_place=True)
    if job.software.half_weights or job.shards in LOW_NETWORK:
        return Storage(low, saved, low, low, low, master=FULL, upcast_gradient=FULL)
    return Storage(low, saved, FULL, FULL, FULL, autocast=True)


def counts_examples(job: TrainingJob) -> bool:
    """Whether a decoder's epoch is so many examples, each a sample of its own or packed."""
    counted = job.dataset_size is not None or (job.data is not None and job.data.tokens is None)
    return counted and entry_of(job.model).group == "gpt"


def cuts_examples(job: TrainingJob) -> bool:
    """Whether those may be shorter than the sequence; other frameworks fill a stated one."""
    return counts_examples(job) and (job.framework == PYTORCH or job.seq_len is None)


# Share of a 512-token BERT batch that is not padding: about half (Krell et al., arXiv 2107.02027).
UNPADDED = 0.5
# Norms read and write the format of what flows, whatever they compute in, where the framework
# keeps everything in the lower one.
STORED_LOW = frozenset({Kind.LAYER_NORM, Kind.SOFTMAX, Kind.EMBEDDING})


def job_graph(job: TrainingJob, entry: ModelEntry) -> Graph:
    """The operators of one micro-step of the whole network, not cut into pipeline stages."""
    return graph_of(entry.name, overrides(entry, job.variant), workload(job, entry))


@lru_cache(maxsize=16)
def job_operators(job: TrainingJob, graph: Graph) -> tuple[TypedOperator, ...]:
    """The operators of a graph in the formats, layouts and fusions of the job's framework."""
    typed = _typed(graph, runnable(job), job.gpu, casts_one_by_one(job))
    return lowered(job, _stored(job, typed))


def casts_one_by_one(job: TrainingJob) -> bool:
    """Whether autocast runs a kernel for each cast; FSDP and frozen weights are 16 bits anyway."""
    software = job.software
    fuses_casts = software.compiled or software.captured or fuses(job)
    full = storage_of(job).autocast and job.shards == "ddp" and not software.trains_adapters
    return software.casts_one_by_one and full and not fuses_casts


@lru_cache(maxsize=16)
def _typed(graph: Graph, precision: Precision, gpu: str, eager: bool) -> tuple[TypedOperator, ...]:
    """The operators of a graph in their formats; kept for a job and what it could be instead."""
    return autocast(graph, precision, find_gpu(gpu), one_by_one=eager)


def _stored(job: TrainingJob, typed: tuple[TypedOperator, ...]) -> tuple[TypedOperator, ...]:
    """The operators with norms in the lower format, where the framework keeps everything there."""
    low = job.precision.activation_dtype
    if not job.precision.mixed or storage_of(job).full != low.bytes:
        return typed
    return tuple(
        t._replace(dtype=low, bytes=(t.operator.reads + t.operator.writes) * low.bytes)
        if t.operator.kind in STORED_LOW
        or (t.operator.kind is Kind.ELEMENTWISE and t.operator.origins is not None)  # of a trace
        else t
        for t in typed
        if t.operator.kind is not Kind.CAST or t.operator.function in ("", WIDE)
    )


def workload(job: TrainingJob, entry: ModelEntry) -> Workload:
    """The micro-batch of a job, completed by the defaults of the catalog entry."""
    seq_len, samples = job.seq_len or entry.seq_len, job.micro_batch_size
    entry.check_tokens({"seq_len": job.seq_len, "mean_seq_len": job.mean_seq_len})
    if job.packed and seq_len:  # each attends to itself alone
        tokens = samples * seq_len
        samples = max(1, round(samples / job.packed))
        seq_len = tokens // samples
    elif job.mean_seq_len:
        seq_len = job.mean_seq_len
    elif seq_len and (bins := job.software.unpadded):  # of a width: samples fill half of the last
        width = int(bins) if str(bins).isdigit() else 0
        seq_len = max(1, min(seq_len, int(seq_len * UNPADDED) + width // 2))
    if seq_len and job.context_parallel > 1:
        seq_len = max(1, seq_len // job.context_parallel)
    return Workload(
        batch_size=samples,
        seq_len=seq_len,
        image_size=entry.sized(job.image_size) if job.image_size else entry.image_size,
        flash_attention=job.software.fused_attention,
        fused_layers=job.framework in LOW_WEIGHTS or fuses(job),
        tensor_parallel=job.tensor_parallel,
        sequence_parallel=job.sequence_parallel,
        context_parallel=job.context_parallel,
        expert_parallel=job.expert_parallel,
        expert_tensor_parallel=job.expert_split,
        grouped_experts=job.software.grouped_experts,
        fused_experts=job.software.fused_experts,
        # sentences that have labels are samples, not a corpus: a classifier has no words to score
        scores_every_token=job.software.scores_every_token
        and (not job.data or bool(job.data.tokens)),
        adapter_rank=job.software.rank,
        base_bits=job.software.base_bits or 0,
        joint_adapters=job.framework in LOW_WEIGHTS,
        wide_adapters=job.precision.mixed and not fuses(job),
        adapts_all=job.software.adapts_all,
        frozen=job.software.frozen == "backbone",
    )


def layer_count(job: TrainingJob, entry: ModelEntry, repeated: int) -> int:
    """Layers of the network as its sizes state them, else how often its layers are ``repeated``."""
    pattern = dict(overrides(entry, job.variant)).get(
        "hybrid_pattern", entry.architecture.get("hybrid_pattern", "")
    )
    return dimension(job, entry, "layers") or len(str(pattern).replace("|", "")) or repeated


def dimension(job: TrainingJob, entry: ModelEntry, key: str) -> int:
    """A size of the network as the job has it, 0 where it is no number."""
    changes = dict(overrides(entry, job.variant))
    value = changes.get(key, entry.architecture.get(key, 0))
    return int(value) if str(value).isdigit() else 0


def lowered(job: TrainingJob, typed: tuple[TypedOperator, ...]) -> tuple[TypedOperator, ...]:
    """The operators as the device runs them under the framework and options of a job."""
    if job.hardware.kind == CPU:
        return typed  # layouts are part of what tables of a CPU time
    if job.software.captured or fuses(job):
        typed = tuple(t for t in typed if t.operator.function != READ_BACK)
    if job.software.spells_out:
        typed = tuple(spelt_out(typed))
    if job.software.sums_columns and not any(t.operator.function == SPELT_NORM for t in typed):
        typed = tuple(column_sums(typed, job.hardware))
    last = job.software.channels_last and takes_channels_last(job)
    asked = job.precision is Precision.TF32
    if job.precision is Precision.FP32 or (asked and not job.software.older_cudnn):
        peaks = job.hardware.peak_flops  # cuDNN picks the fastest
        pays = peaks.get("tf32", 0.0) > (0.0 if last else TF32_PAYS * peaks["fp32"])
        tf32 = pays and (asked or job.software.tf32_convolutions)
        dtype = Dtype.TF32 if tf32 else Dtype.FP32
        typed = tuple(
            t._replace(dtype=dtype, tensor_core=tf32) if t.operator.kind is CONV else t
            for t in typed
        )
    if not last:
        typed = (*typed, *transposes(typed, job.hardware, pointwise=job.software.older_cudnn))
    elif job.precision.activation_dtype.bytes == 2:
        typed = tuple(off_tensor_cores(typed))
    return tuple(fused(typed, job.precision.activation_dtype.bytes)) if fuses(job) else typed


# Elements that TensorFlow without XLA moves for each element of these, forward and backward: it
# runs a kernel for each operation that they are written in (power and tanh of BERT's GELU; moments
# and batch_normalization of tf.contrib's layer norm). Counted, not fitted.
SPELT_OUT = {"gelu": (18.0, 26.0), Kind.LAYER_NORM: (15.0, 32.0)}


def spelt_out(typed: Sequence[TypedOperator]) -> Iterator[TypedOperator]:
    """The operators with the traffic of what TensorFlow spells out, where XLA is off.

    In FP32: its mixed precision lowers neither Pow and Mean nor what stands between them and a
    product (auto_mixed_precision_lists.h). A job that says nothing of XLA may use it, as NVIDIA's
    recipes do.
    """
    times = None
    for item in typed:
        operator = item.operator
        if operator.direction is FORWARD:
            times = SPELT_OUT.get(operator.function or operator.kind)
        if not times or operator.kind not in (Kind.ELEMENTWISE, Kind.LAYER_NORM):
            yield item
            continue
        elements = times[operator.direction is not FORWARD] * prod(operator.dims)
        yield item._replace(dtype=Dtype.FP32, bytes=elements * FULL)


# Where PyTorch sums the gradients of a layer norm's weights before 2.8, in one block for every 32
# columns (pytorch 147773): what a block of 512 threads, each waiting for memory, reads in a second.
# Priced as other traffic it comes to 30 GB/s; timm's training on RTX 3090 has 25 to 35.
COLUMNS, BLOCK_BYTES_PER_S = 32, 40e9


def column_sums(typed: Sequence[TypedOperator], gpu: Gpu) -> Iterator[TypedOperator]:
    """The operators with the time of those sums as traffic: of few columns few SMs read."""
    for item in typed:
        operator = item.operator
        if operator.kind is Kind.LAYER_NORM and operator.direction is not FORWARD:
            rows, width = operator.dims[:2]
            rate = min(ceil(width / COLUMNS), gpu.sms) * BLOCK_BYTES_PER_S
            times = max(0.0, gpu.bandwidth_bytes_per_s / rate - 1)
            item = item._replace(bytes=item.bytes + times * 2 * rows * width * item.dtype.bytes)
        yield item


def takes_channels_last(job: TrainingJob) -> bool:
    """Whether convolutions can have channels last: torch has no such format of a single axis.

    TensorFlow 1 turns volumes to channels first inside each operator (conv_ops_3d.cc).
    """
    entry = find_entry(job.model)
    axes = len(entry.image_size or ()) if entry else 2
    if job.framework == "tensorflow1" and axes == 3:
        return False
    return axes > 0 or job.framework.startswith(ANY_AXES)


# What a pointwise operator can be fused into.
HOSTS = {Kind.ELEMENTWISE, Kind.SOFTMAX, *(kind for kind in Kind if kind.value.endswith("_norm"))}


def fuses(job: TrainingJob) -> bool:
    """Whether the framework of a job, or a compiler it asks for, fuses pointwise operators."""
    return job.software.compiled or job.software.fused_kernels


def fused(typed: Sequence[TypedOperator], stored: float) -> Iterator[TypedOperator]:
    """The same operators, in the same order, with the traffic that fusion leaves.

    A pointwise operator and its gradient are fused where the forward operator before it is bound by
    memory, or a vocabulary's. Logits of ``stored`` bytes are read twice, their gradient once more.
    """
    behind = inside = False
    for item in typed:
        operator = item.operator
        if operator.kind is Kind.CAST and operator.function:
            yield item._replace(bytes=0.0)  # of autocast: a part of the function it is made for
            continue
        if operator.direction is FORWARD:
            inside = behind or operator.function == VOCABULARY
            behind = operator.kind in HOSTS
        elements = float(operator.dims[0] * operator.dims[1])
        if operator.kind is Kind.LOSS and operator.dims[0] > 1:
            yield item._replace(bytes=2 * elements * stored)
        elif inside and operator.kind is Kind.ELEMENTWISE:
            left = max(0.0, operator.reads - elements) + max(0.0, operator.writes - elements)
            yield item._replace(bytes=left * item.dtype.bytes)
        else:
            yield item


# Grouped convolutions with channels last run on tensor cores for these channels of a group, and for
# multiples of these groups and channels; others are 5 to 15 times slower (pytorch-image-models,
# channels last against first, cuDNN 8.3).
CONV = Kind.CONV
WIDTHS = frozenset({4, 8, 16, 32})
GROUPS = 8
CHANNELS = 64
# Of the TF32 peak over that of FP32, where tensor cores pay with channels first: Winograd's FP32
# divides the products of a 3x3 by 2.25 (arXiv 1509.09308), and wants no copies.
TF32_PAYS = 3.0
# Elements that a transposing copy moves in a clock of an SM, whatever their width: it turns tiles
# in shared memory, one element at a time. ResNet-50 and SSD, channels first in FP16 on V100, A100
# and H100 (lambdal/deeplearning-benchmark), want 1.2 to 1.4, times the share of bandwidth reached.
ELEMENTS_PER_CLOCK = 1.5


def transposes(
    typed: Sequence[TypedOperator], gpu: Gpu, *, pointwise: bool = True
) -> list[TypedOperator]:
    """The copies around tensor-core convolutions, ``pointwise`` ones too, with channels first.

    One operator per pass and format, with the bytes and kernels of all of them: cuDNN launches
    them inside its own call. Where memory is faster than the copies, it waits for them.
    """
    element = gpu.bandwidth_bytes_per_s / (ELEMENTS_PER_CLOCK * gpu.sms * gpu.boost_clock_hz)
    moved: dict[tuple[Direction, Dtype], list[float]] = {}
    onto = Direction.WEIGHT_GRADIENT
    for operator, dtype, _, tensor_core in typed:
        if operator.kind is not CONV or not tensor_core or depthwise(operator):
            continue
        if operator.dims[4] == 1 and not pointwise:
            continue
        total = moved.setdefault((operator.direction, dtype), [0.0, 0.0])
        m, n, k = operator.dims[:3]
        weights = m * n if operator.direction is onto else n * k
        total[0] += (operator.reads + operator.writes - weights) * operator.count
        total[1] += 2.0 * operator.count
    return [
        TypedOperator(
            Operator(Kind.CAST, direction, (1, int(elements)), 0.0, elements, elements, kernels),
            dtype,
            elements * max(2 * dtype.bytes, element),
            False,
        )
        for (direction, dtype), (elements, kernels) in moved.items()
    ]


def off_tensor_cores(typed: Sequence[TypedOperator]) -> Iterator[TypedOperator]:
    """The operators of a network with channels last: some grouped convolutions have no kernel."""
    for item in typed:
        yield item._replace(tensor_core=False) if item.tensor_core and _slow(item) else item


def _slow(item: TypedOperator) -> bool:
    operator = item.operator
    if operator.kind is not CONV or operator.dims[3] == 1:
        return False
    m, n, k, groups, volume = operator.dims[:5]
    width = (m if operator.direction is Direction.WEIGHT_GRADIENT else k) // volume
    whole = width == n and groups % GROUPS == 0 and width * groups % CHANNELS == 0
    return not (whole and width in WIDTHS)


def depthwise(operator: Operator) -> bool:
    """Whether every group of a convolution has one input channel."""
    m, _, k, groups, volume = operator.dims[:5]
    return groups > 1 and (m if operator.direction is Direction.WEIGHT_GRADIENT else k) <= volume
