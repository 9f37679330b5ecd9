"""Operators of one training micro-step, and the graph that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


PRODUCT_KINDS = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION, Kind.RNN})


class Direction(StrEnum):
    """Which pass of the step an operator belongs to."""

    FORWARD = "forward"
    DATA_GRADIENT = "data_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, ``count`` times.

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
        return sum(
            op.flops * op.count for op in self.operators if op.direction is Direction.FORWARD
        )

    @property
    def flops(self) -> float:
        """FLOPs of forward and backward of the whole micro-batch."""
        return sum(op.flops * op.count for op in self.operators)
