"""One training micro-step: its sizes, its operators, and the graph that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import GraphError


@dataclass(frozen=True, slots=True)
class Workload:
    """One micro-batch on one GPU.

    ``batch_size`` is in samples; ``seq_len`` in tokens (or frames) per sample; ``image_size`` in
    pixels or voxels per axis, ``(height, width)`` or ``(depth, height, width)``.
    ``flash_attention`` fuses attention into one operator, ``fused_layers`` the pointwise kernels of
    a transformer layer. ``tensor_parallel`` divides its heads and feed-forward widths,
    ``sequence_parallel`` also the tokens its norms and residuals see. ``seq_len`` is the part of
    one of ``context_parallel`` GPUs, whose queries attend to the keys of all. ``expert_parallel``
    GPUs share the experts of a mixture, whose products one launch starts if ``grouped_experts``,
    and one kernel computes with their activation inside if ``fused_experts``; each expert is
    split over ``expert_tensor_parallel`` of those that split other layers. Adapters of
    ``adapter_rank`` train alone, beside weights of ``base_bits`` where not 0, one for the
    ``joint_adapters`` of an attention's inputs, beside every product if it ``adapts_all``, or where
    it is ``frozen`` the head; ``wide_adapters`` are cast to FP32 and back, a kernel for each step.
    """

    batch_size: int
    seq_len: int | None = None
    image_size: tuple[int, ...] | None = None
    flash_attention: bool = False
    fused_layers: bool = False
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    adapter_rank: int = 0
    base_bits: int = 0
    joint_adapters: bool = False
    wide_adapters: bool = True
    adapts_all: bool = False
    frozen: bool = False
    grouped_experts: bool = False
    fused_experts: bool = False
    scores_every_token: bool = False

    @property
    def image(self) -> tuple[int, ...]:
        """The image size; raises GraphError where the job has none."""
        if self.image_size is None:
            raise GraphError("this model needs image_size")
        return self.image_size

    @property
    def tokens(self) -> int:
        """The sequence length; raises GraphError where the job has none."""
        if self.seq_len is None:
            raise GraphError("this model needs seq_len")
        return self.seq_len


class Kind(StrEnum):
    """What an operator computes; decides its autocast policy and its time model."""

    GEMM = "gemm"
    BATCHED_GEMM = "batched_gemm"
    CONV = "conv"
    ATTENTION = "attention"
    RNN = "rnn"
    BATCH_NORM = "batch_norm"
    INSTANCE_NORM = "instance_norm"
    GROUP_NORM = "group_norm"
    LAYER_NORM = "layer_norm"
    SOFTMAX = "softmax"
    LOSS = "loss"
    ELEMENTWISE = "elementwise"
    POOL = "pool"
    EMBEDDING = "embedding"
    CAST = "cast"
    OPTIMIZER = "optimizer"


# Function of what the host reads from the device, one value a launch: steps that are captured or
# fused by hand do without.
READ_BACK = "read_back"
# Of products of experts whose kernel holds the activation behind them, and casts what it gives.
FUSED_EXPERTS = "fused_experts"
# Of the product behind the last layer, which recipes of FP8 leave in 16 bits.
VOCABULARY = "vocabulary"
WIDE = "widened"  # function of weights in fewer bits that are written out in 16
PRODUCT_KINDS = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION, Kind.RNN})


class Direction(StrEnum):
    """Which pass of the step an operator belongs to."""

    FORWARD = "forward"
    DATA_GRADIENT = "data_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    UPDATE = "update"


# In Python 3.11 it takes eight times as long to ask an enum for a member as to read a name.
FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT, UPDATE = Direction


# Hundreds are made for a new job, and a frozen one takes five times as long to make.
@dataclass(slots=True, unsafe_hash=True)
class Operator:
    """One operator, ``count`` times; never changed.

    ``dims`` by kind (all integers):

    - ``gemm``: (m, n, k), C[m,n] = A[m,k] B[k,n]
    - ``batched_gemm``: (m, n, k, batch)
    - ``conv``: implicit GEMM of THIS direction (m, n, k, groups, kernel_volume, stride);
      forward m = batch x output positions, n = output channels / groups,
      k = input channels / groups x kernel_volume
    - ``attention`` (fused): (query_len, key_len, head_dim, batch x heads)
    - ``rnn`` (recurrent part only, the input GEMM is its own operator):
      (steps, batch, hidden, gates)
    - everything else: (rows, cols)

    ``flops`` counts multiply and add as two. ``reads`` and ``writes`` are ELEMENTS moved to and
    from memory by one instance; the autocast pass turns them into bytes. ``kernels`` is the
    number of device launches of one instance. ``function`` is what an operator came from: torch's
    name (``relu``, ``mul``, ``dropout``), ``spelt_gelu`` and the like for chains of eager code, the
    name of a fused kernel it is a part of, or nothing. ``origins`` name what decides the format of
    a traced operator under autocast (``predictor.physics.autocast``); None takes the format of
    the operator before.
    """

    kind: Kind
    direction: Direction
    dims: tuple[int, ...]
    flops: float
    reads: float
    writes: float
    kernels: float = 1.0
    count: float = 1.0
    function: str = ""
    origins: tuple[str, ...] | None = None


def is_forward(operator: Operator) -> bool:
    """Whether this is work of the forward pass."""
    return operator.direction is FORWARD


@dataclass(frozen=True, slots=True)
class Graph:
    """The operators of one micro-step (forward, loss and backward) on one GPU.

    ``operators`` stand in execution order of the forward pass, each forward operator followed by
    its gradients. ``parameters`` counts all weights, ``trainable_parameters`` those with a
    gradient, ``sparse_parameters`` those of embedding tables that are updated by row and never
    all-reduced densely. ``parameter_tensors`` is the number of trainable weight tensors.
    ``synchronous`` says that the host reads results back in between (shapes that depend on data,
    such as the boxes a detector keeps), so that it cannot run ahead of the device.
    """

    operators: tuple[Operator, ...]
    parameters: int
    trainable_parameters: int
    parameter_tensors: int
    sparse_parameters: int
    input_elements: float
    synchronous: bool = False

    def __hash__(self) -> int:
        """Of the numbers: hashing hundreds of operators costs more than pricing them."""
        return hash((self.parameters, self.input_elements, len(self.operators)))

    @property
    def forward_flops(self) -> float:
        """FLOPs of the forward pass of the whole micro-batch."""
        return sum(op.flops * op.count for op in self.operators if is_forward(op))

    @property
    def flops(self) -> float:
        """FLOPs of forward and backward of the whole micro-batch."""
        return sum(op.flops * op.count for op in self.operators)
