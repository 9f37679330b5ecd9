"""Where the operators of a micro-step are collected, and the layers that only move memory.

Each forward operator of a layer brings its gradients with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..errors import GraphError
from .operator import (
    DATA_GRADIENT,
    FORWARD,
    PRODUCT_KINDS,
    Direction,
    Graph,
    Kind,
    Operator,
    Workload,
)

ELEMENTWISE, LAYER_NORM = Kind.ELEMENTWISE, Kind.LAYER_NORM
NORMS = {"batch": Kind.BATCH_NORM, "group": Kind.GROUP_NORM, "instance": Kind.INSTANCE_NORM}

Origins = tuple[str, ...] | None
Way = tuple[float, float, float]  # read and written per element, and launches


@dataclass(slots=True)  # not frozen, as ``Operator``
class Feature:
    """A feature map of one sample: channels, spatial size (1, 2 or 3 axes) and its positions."""

    channels: int
    size: tuple[int, ...]
    positions: int = field(init=False)

    def __post_init__(self) -> None:
        self.positions = prod(self.size)

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return self.channels * self.positions

    def with_channels(self, channels: int) -> Feature:
        """The same positions with another channel count (a concatenation, a split)."""
        return Feature(channels, self.size)


def axes(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One value per axis."""
    return (value,) * rank if isinstance(value, int) else value


class Recorder:
    """Collects the operators and parameters of one micro-step, which is ``work``."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.batch_size = work.batch_size
        self._operators: list[Operator] = []
        self._repeat = 1
        self._launches = 1.0
        self._trainable = True
        self._backward = True
        self._parameters = 0
        self._trainable_parameters = 0
        self._parameter_tensors = 0
        self._sparse_parameters = 0
        self._input_elements = 0.0
        self._synchronous = False
        self._given: Origins = None
        self._entering: Origins = None
        self._result: Origins = None
        self._function = ""

    # --- scopes -----------------------------------------------------------------------------

    @contextmanager
    def _within(self, **changes: Any) -> Iterator[None]:
        """Another state inside."""
        outer = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(outer)

    def repeat(self, times: int) -> AbstractContextManager[None]:
        """Everything inside stands ``times`` times, weights included; 0 leaves it out."""
        return self._within(_repeat=self._repeat * times)

    def grouped(self, times: int) -> AbstractContextManager[None]:
        """As ``repeat``, but one launch starts them all (grouped GEMMs)."""
        return self._within(_launches=self._launches / times, _repeat=self._repeat * times)

    def regions(self, count: int) -> AbstractContextManager[None]:
        """Inside, one sample is one region: ``count`` of them in the micro-batch."""
        return self._within(batch_size=count)

    def frozen(self) -> AbstractContextManager[None]:
        """Weights inside get no gradient; data gradients still flow through."""
        return self._within(_trainable=False)

    def forward_only(self) -> AbstractContextManager[None]:
        """No gradient of any kind inside (a frozen stem, a teacher, target sampling)."""
        return self._within(_trainable=False, _backward=False)

    def formats(
        self, given: Iterable[str], result: Iterable[str], *, entering: Iterable[str] = ()
    ) -> AbstractContextManager[None]:
        """Operators inside work on tensors of these origins, their gradients on the results'.

        ``entering`` are those of what comes into a product, before it is cast.
        """
        own, came, out = (tuple(sorted(names)) for names in (given, entering, result))
        return self._within(_given=own, _entering=came, _result=out)

    def inside(self, function: str) -> AbstractContextManager[None]:
        """Operators inside are parts of one fused function, which the memory model knows."""
        return self._within(_function=function)

    # --- bookkeeping ------------------------------------------------------------------------

    def input(self, elements_per_sample: float) -> None:
        """What the host sends to the GPU for one sample, in elements."""
        self._input_elements += elements_per_sample * self.batch_size

    def synchronise(self) -> None:
        """Say that the host waits for results of the device within a micro-step."""
        self._synchronous = True

    def parameters(self, elements: int, tensors: int = 1, *, sparse: bool = False) -> None:
        """Count weights without an operator (tied weights are counted once, by their owner)."""
        self._parameters += elements * self._repeat
        if self._trainable:
            self._trainable_parameters += elements * self._repeat
            self._parameter_tensors += tensors * self._repeat
            if sparse:
                self._sparse_parameters += elements * self._repeat

    def emit(
        self,
        kind: Kind,
        direction: Direction,
        dims: tuple[int, ...],
        flops: float = 0.0,
        reads: float = 0.0,
        writes: float = 0.0,
        kernels: float = 1.0,
        function: str = "",
    ) -> None:
        """Add one operator; the layers below are built from this."""
        if not self._repeat:
            return
        origins = self._result
        if direction is FORWARD:
            origins = self._entering if kind in PRODUCT_KINDS else self._given
        launches, times = kernels * self._launches, 1.0 * self._repeat
        named = self._function or function
        self._operators.append(
            Operator(kind, direction, dims, flops, reads, writes, launches, times, named, origins)
        )

    def take(self, operators: Iterable[Operator]) -> None:
        """Add finished operators."""
        self._operators.extend(operators)

    def build(self) -> Graph:
        """The finished graph."""
        return Graph(
            operators=tuple(self._operators),
            parameters=self._parameters,
            trainable_parameters=self._trainable_parameters,
            parameter_tensors=self._parameter_tensors,
            sparse_parameters=self._sparse_parameters,
            input_elements=self._input_elements,
            synchronous=self._synchronous,
        )

    def _elements(self, x: Feature | float) -> float:
        return self.batch_size * x.elements if isinstance(x, Feature) else x


class MemoryLayers(Recorder):
    """Element-wise work, norms, softmax, losses, pooling and embeddings."""

    def both(
        self,
        kind: Kind,
        dims: tuple[int, ...],
        forward: tuple[float, float],
        backward: tuple[float, float],
        *,
        kernels: float = 1.0,
        backward_kernels: float | None = None,
        flops: float = 0.0,
        backward_flops: float = 0.0,
        function: str = "",
    ) -> None:
        """An operator and its data gradient, each with elements (read, written)."""
        self.emit(kind, FORWARD, dims, flops, *forward, kernels, function)
        if self._backward:
            launches = kernels if backward_kernels is None else backward_kernels
            self.emit(kind, DATA_GRADIENT, dims, backward_flops, *backward, launches)

    def elementwise(
        self,
        x: Feature | float,
        *,
        reads: float = 1.0,
        writes: float = 1.0,
        backward_reads: float | None = None,
        backward_writes: float = 1.0,
        kernels: float = 1.0,
        backward_kernels: float | None = None,
        function: str = "",
    ) -> None:
        """``x`` outputs; reads and writes are per output element, each way.

        By default the backward reads one more tensor than the forward (the saved input).
        ``function`` is torch's name, which says what memory keeps for the backward.
        ``backward_writes=0`` means there is no backward operator.
        """
        back = reads + 1 if backward_reads is None else backward_reads
        launches = kernels if backward_kernels is None else backward_kernels
        backward = (back, backward_writes, launches) if backward_writes else None
        self.chain(x, (reads, writes, kernels), backward, function)

    def chain(
        self, x: Feature | float, forward: Way, backward: Way | None, function: str = ""
    ) -> None:
        """A chain of pointwise kernels: per element read and written, and launches, each way."""
        n = self._elements(x)
        dims, (reads, writes, kernels) = (1, int(n)), forward
        self.emit(ELEMENTWISE, FORWARD, dims, 0.0, reads * n, writes * n, kernels, function)
        if backward and self._backward:
            reads, writes, kernels = backward
            self.emit(ELEMENTWISE, DATA_GRADIENT, dims, 0.0, reads * n, writes * n, kernels)

    def move(self, x: Feature | float) -> None:
        """A copy each way: another layout, a slice, a gather, a scaling."""
        self.elementwise(x, backward_reads=1)

    def activation(self, x: Feature | float, function: str = "relu") -> None:
        """ReLU, GELU, SiLU ...: one read and one write forward, two reads and one write back."""
        self.elementwise(x, function=function)

    def add(self, x: Feature | float) -> None:
        """Residual addition; its gradient is one addition where the branches join again."""
        self.elementwise(x, reads=2, backward_reads=2, function="add")

    def multiply(self, x: Feature | float) -> None:
        """Product of two activations (gating); both gradients."""
        self.elementwise(x, reads=2, backward_reads=3, backward_writes=2, function="mul")

    def dropout(self, x: Feature | float) -> None:
        """Dropout with a one-byte mask (a quarter of an element)."""
        self.elementwise(x, writes=1.25, backward_reads=1.25, function="dropout")

    def concat(self, x: Feature | float) -> None:
        """Copy into a concatenated tensor of this size; the backward copies out again."""
        self.elementwise(x, backward_reads=1, function="cat")

    def join(self, x: Feature, other: Feature) -> Feature:
        """The channels of both, copied into one map."""
        joined = x.with_channels(x.channels + other.channels)
        self.concat(joined)
        return joined

    def upsample(self, x: Feature, size: tuple[int, ...]) -> Feature:
        """Interpolate to ``size``."""
        out = Feature(x.channels, size)
        ratio = x.positions / out.positions
        self.elementwise(out, reads=ratio, backward_reads=1, backward_writes=ratio)
        return out

    def norm(self, x: Feature, kind: str = "batch", *, affine: bool = True) -> None:
        """Batch, group or instance norm, ``frozen`` or ``none``; raises GraphError for another.

        Group norm runs in FP32 under autocast, other than the two. ``frozen`` is a fixed scale and
        shift, recomputed from four vectors at every call (``FrozenBatchNorm2d`` of detectron2,
        maskrcnn-benchmark and torchvision).
        """
        if kind in NORMS:
            if affine:
                self.parameters(2 * x.channels, 2)
            n, dims = self.batch_size * x.elements, (self.batch_size * x.positions, x.channels)
            self.both(NORMS[kind], dims, (2 * n, n), (4 * n, n))
        elif kind == "frozen":
            self.elementwise(x, reads=2, writes=2, kernels=6, backward_reads=1, backward_kernels=1)
        elif kind != "none":
            known = ", ".join((*NORMS, "frozen", "none"))
            raise GraphError(f"norm={kind!r} is not known: {known}")

    def layer_norm(
        self, rows: int, width: int, *, bias: bool = True, affine: bool = True, sums: int = 2
    ) -> None:
        """Layer norm (RMS norm with ``bias=False``) of ``rows`` rows; ``sums`` kernels back."""
        if affine:
            self.parameters(2 * width if bias else width, 2 if bias else 1)
        n = rows * width
        self.both(LAYER_NORM, (rows, width), (n, n), (3 * n, n), backward_kernels=sums)

    def softmax(self, rows: int, cols: int) -> None:
        """Softmax over ``cols`` for each of ``rows`` rows."""
        n = rows * cols
        self.both(Kind.SOFTMAX, (rows, cols), (n, n), (2 * n, n))

    def cross_entropy(self, rows: int, classes: int) -> None:
        """Log-softmax and negative log-likelihood over ``classes``."""
        n = rows * classes
        self.both(Kind.LOSS, (rows, classes), (2 * n, n), (2 * n, n), kernels=2)

    def regression_loss(self, x: Feature | float, *, kernels: float = 4.0) -> None:
        """A pointwise loss (MSE, L1, BCE, dice): few launches over the elements of ``x``."""
        n = self._elements(x)
        self.both(Kind.LOSS, (1, int(n)), (kernels * n, n), (2 * n, n), kernels=kernels)

    def pool(
        self,
        x: Feature,
        kernel: int | tuple[int, ...],
        *,
        stride: int | tuple[int, ...] | None = None,
        padding: int = 0,
        ceil: bool = False,
    ) -> Feature:
        """Max or average pooling."""
        rank = len(x.size)
        k = axes(kernel, rank)
        s = k if stride is None else axes(stride, rank)
        sizes = zip(x.size, k, s, strict=True)
        size = tuple((n + 2 * padding - a + (t - 1) * ceil) // t + 1 for n, a, t in sizes)
        return self._pool(x, Feature(x.channels, size))

    def global_pool(self, x: Feature) -> Feature:
        """Average over all positions."""
        return self._pool(x, Feature(x.channels, (1,) * len(x.size)), "mean")

    def _pool(self, x: Feature, out: Feature, function: str = "") -> Feature:
        a, c = self._elements(x), self._elements(out)
        dims = (self.batch_size * out.positions, x.channels)
        self.both(Kind.POOL, dims, (a, c), (2 * c, a), function=function)
        return out

    def embedding(
        self,
        rows: int,
        width: int,
        vocab: int,
        *,
        sparse: bool = False,
        shared: bool = False,
        bag: float = 1.0,
    ) -> None:
        """Look up ``rows`` rows of a ``vocab x width`` table, and sum each ``bag`` of them.

        A dense gradient is written over the whole table; a ``sparse`` one only where rows were
        read (recommendation tables), and such a table is never all-reduced.
        """
        if not shared:
            self.parameters(vocab * width, sparse=sparse)
        n, dims = rows * width, (rows, width)
        self.emit(Kind.EMBEDDING, FORWARD, dims, reads=n, writes=n / bag)
        if self._trainable:
            table = n if sparse else n + vocab * width
            moved, weights = n + n / bag, Direction.WEIGHT_GRADIENT
            self.emit(Kind.EMBEDDING, weights, dims, 0.0, moved, table, 2)
