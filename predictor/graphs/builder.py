"""Emits operators layer by layer; each forward operator brings its gradients with it.

A family builder describes a network in the order of its forward pass. Shapes are explicit: a
``Feature`` is what flows between convolutions, ``rows`` what flows between linear layers. FLOPs
count a multiply-add as two; bias additions, norms and activations count as memory traffic only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from .operator import Direction, Graph, Kind, Operator

FORWARD = Direction.FORWARD
DATA_GRADIENT = Direction.DATA_GRADIENT
WEIGHT_GRADIENT = Direction.WEIGHT_GRADIENT


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature map of one sample: channels and spatial size (1, 2 or 3 axes)."""

    channels: int
    size: tuple[int, ...]

    @property
    def positions(self) -> int:
        """Spatial positions of one sample."""
        return prod(self.size)

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return self.channels * self.positions

    def with_channels(self, channels: int) -> Feature:
        """The same positions with another channel count (a concatenation, a split)."""
        return Feature(channels, self.size)


def _axes(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else value


class GraphBuilder:
    """Collects the operators and parameters of one micro-step of ``batch_size`` samples."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._operators: list[Operator] = []
        self._repeat = 1
        self._trainable = True
        self._backward = True
        self._parameters = 0
        self._trainable_parameters = 0
        self._parameter_tensors = 0
        self._sparse_parameters = 0
        self._input_elements = 0.0

    # --- scopes -----------------------------------------------------------------------------

    @contextmanager
    def repeat(self, times: int) -> Iterator[None]:
        """Everything inside stands ``times`` times, weights included."""
        outer = self._repeat
        self._repeat = outer * times
        try:
            yield
        finally:
            self._repeat = outer

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Weights inside get no gradient; data gradients still flow through."""
        outer, self._trainable = self._trainable, False
        try:
            yield
        finally:
            self._trainable = outer

    @contextmanager
    def forward_only(self) -> Iterator[None]:
        """No gradient of any kind inside (a frozen stem, a teacher, target sampling)."""
        outer = self._trainable, self._backward
        self._trainable = self._backward = False
        try:
            yield
        finally:
            self._trainable, self._backward = outer

    # --- bookkeeping ------------------------------------------------------------------------

    def input(self, elements_per_sample: float) -> None:
        """What the host sends to the GPU for one sample, in elements."""
        self._input_elements += elements_per_sample * self.batch_size

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
        *,
        flops: float = 0.0,
        reads: float = 0.0,
        writes: float = 0.0,
        kernels: float = 1.0,
        count: float = 1.0,
    ) -> None:
        """Add one operator as it is; the layers below are built from this."""
        self._operators.append(
            Operator(kind, direction, dims, flops, reads, writes, kernels, count * self._repeat)
        )

    def build(self) -> Graph:
        """The finished graph."""
        return Graph(
            operators=tuple(self._operators),
            parameters=self._parameters,
            trainable_parameters=self._trainable_parameters,
            parameter_tensors=self._parameter_tensors,
            sparse_parameters=self._sparse_parameters,
            input_elements=self._input_elements,
        )

    # --- matrix work ------------------------------------------------------------------------

    def conv(
        self,
        x: Feature,
        out_channels: int,
        kernel: int | tuple[int, ...],
        *,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
        shared: bool = False,
        data_gradient: bool = True,
    ) -> Feature:
        """Convolution over 1, 2 or 3 axes.

        ``padding=None`` pads so that stride 1 keeps the size. ``shared`` reuses weights already
        counted (a head run on several levels). The first layer of a network has no data gradient:
        pass ``data_gradient=False`` there.
        """
        rank = len(x.size)
        k, s = _axes(kernel, rank), _axes(stride, rank)
        pad = tuple((a - 1) * dilation // 2 for a in k) if padding is None else _axes(padding, rank)
        out = Feature(
            out_channels,
            tuple(
                (n + 2 * p - dilation * (a - 1) - 1) // t + 1
                for n, p, a, t in zip(x.size, pad, k, s, strict=True)
            ),
        )
        self._convolution(x, out, k, s, groups, bias, shared, data_gradient, out.positions)
        return out

    def conv_transpose(
        self,
        x: Feature,
        out_channels: int,
        kernel: int | tuple[int, ...],
        *,
        stride: int | tuple[int, ...],
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = False,
        groups: int = 1,
        shared: bool = False,
    ) -> Feature:
        """Transposed convolution; its FLOPs are counted at the INPUT positions."""
        rank = len(x.size)
        k, s = _axes(kernel, rank), _axes(stride, rank)
        out = Feature(
            out_channels,
            tuple(
                (n - 1) * t - 2 * padding + a + output_padding
                for n, a, t in zip(x.size, k, s, strict=True)
            ),
        )
        self._convolution(x, out, k, s, groups, bias, shared, True, x.positions)
        return out

    def _convolution(
        self,
        x: Feature,
        out: Feature,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        groups: int,
        bias: bool,
        shared: bool,
        data_gradient: bool,
        macs_positions: int,
    ) -> None:
        volume, step = prod(kernel), prod(stride)
        cin, cout = x.channels // groups, out.channels // groups
        weights = out.channels * cin * volume
        if not shared:
            self.parameters(weights)
            if bias:
                self.parameters(out.channels)
        n_in, n_out = self.batch_size * x.elements, self.batch_size * out.elements
        flops = 2.0 * self.batch_size * macs_positions * cout * cin * volume * groups
        rows_in, rows_out = self.batch_size * x.positions, self.batch_size * out.positions
        tail = (groups, volume, step)
        self.emit(
            Kind.CONV, FORWARD, (rows_out, cout, cin * volume, *tail),
            flops=flops, reads=n_in + weights, writes=n_out,
        )  # fmt: skip
        if bias:
            self.elementwise(n_out, reads=1, backward_writes=0)
        if self._backward and data_gradient:
            self.emit(
                Kind.CONV, DATA_GRADIENT, (rows_in, cin, cout * volume, *tail),
                flops=flops, reads=n_out + weights, writes=n_in,
            )  # fmt: skip
        if self._trainable:
            self.emit(
                Kind.CONV, WEIGHT_GRADIENT, (cin * volume, cout, rows_out, *tail),
                flops=flops, reads=n_out + n_in, writes=weights,
            )  # fmt: skip

    def linear(
        self,
        rows: int,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        shared: bool = False,
        data_gradient: bool = True,
    ) -> None:
        """Fully connected layer on ``rows`` rows of the whole micro-batch.

        The bias is added inside the GEMM; its gradient is a reduction of its own. ``shared``
        reuses weights already counted (tied embeddings).
        """
        weights = in_features * out_features
        if not shared:
            self.parameters(weights)
            if bias:
                self.parameters(out_features)
        flops = 2.0 * rows * weights
        a, c = rows * in_features, rows * out_features
        self.emit(
            Kind.GEMM, FORWARD, (rows, out_features, in_features),
            flops=flops, reads=a + weights, writes=c,
        )  # fmt: skip
        if self._backward and data_gradient:
            self.emit(
                Kind.GEMM, DATA_GRADIENT, (rows, in_features, out_features),
                flops=flops, reads=c + weights, writes=a,
            )  # fmt: skip
        if self._trainable:
            self.emit(
                Kind.GEMM, WEIGHT_GRADIENT, (in_features, out_features, rows),
                flops=flops, reads=a + c, writes=weights,
            )  # fmt: skip
            if bias:
                self.emit(Kind.ELEMENTWISE, WEIGHT_GRADIENT, (rows, out_features), reads=c)

    def batched_matmul(self, batch: int, m: int, n: int, k: int) -> None:
        """``batch`` products A[m,k] B[k,n] of two activations, and both gradients."""
        flops = 2.0 * batch * m * n * k
        a, b, c = batch * m * k, batch * k * n, batch * m * n
        self.emit(Kind.BATCHED_GEMM, FORWARD, (m, n, k, batch), flops=flops, reads=a + b, writes=c)
        if self._backward:
            self.emit(
                Kind.BATCHED_GEMM, DATA_GRADIENT, (m, k, n, batch),
                flops=flops, reads=c + b, writes=a,
            )  # fmt: skip
            self.emit(
                Kind.BATCHED_GEMM, DATA_GRADIENT, (k, n, m, batch),
                flops=flops, reads=c + a, writes=b,
            )  # fmt: skip

    def attention(
        self,
        heads: int,
        query_len: int,
        key_len: int,
        head_dim: int,
        *,
        batch: int | None = None,
        flash: bool = False,
        causal: bool = False,
        dropout: bool = True,
    ) -> None:
        """Scaled dot-product attention of ``batch`` samples (default: the micro-batch).

        Unfused: two batched GEMMs with scale + mask, softmax and dropout over the full score
        matrix, causal or not. ``flash``: one fused operator each way that never writes the scores,
        skips the masked half when ``causal``, and recomputes the forward product in its backward
        (2.5 times the forward FLOPs: Dao et al., arXiv 2205.14135).
        """
        n = (self.batch_size if batch is None else batch) * heads
        scores = n * query_len * key_len
        if not flash:
            self.batched_matmul(n, query_len, key_len, head_dim)
            self.elementwise(scores, reads=1)
            self.softmax(n * query_len, key_len)
            if dropout:
                self.dropout(scores)
            self.batched_matmul(n, query_len, head_dim, key_len)
            return
        flops = 4.0 * scores * head_dim * (0.5 if causal else 1.0)
        q, kv = n * query_len * head_dim, 2 * n * key_len * head_dim
        dims = (query_len, key_len, head_dim, n)
        self.emit(Kind.ATTENTION, FORWARD, dims, flops=flops, reads=q + kv, writes=q)
        if self._backward:
            self.emit(
                Kind.ATTENTION, DATA_GRADIENT, dims,
                flops=2.5 * flops, reads=3 * q + kv, writes=q + kv, kernels=2,
            )  # fmt: skip

    def rnn(
        self,
        steps: int,
        input_size: int,
        hidden: int,
        *,
        gates: int = 4,
        batch: int | None = None,
        bidirectional: bool = False,
        bias_tensors: int = 2,
        fused: bool = True,
    ) -> None:
        """One recurrent layer (``gates`` 4: LSTM, 3: GRU, 1: plain) over ``steps`` time steps.

        Emits the input GEMM over all steps and the recurrent GEMMs as one sequential ``rnn``
        operator. ``fused`` is cuDNN; otherwise each step costs its own launches.
        """
        rows = self.batch_size if batch is None else batch
        launches = 2.0 if fused else 4.0 * steps
        directions = 2 if bidirectional else 1
        weights = gates * hidden * hidden
        state = steps * rows * hidden
        dims = (steps, rows, hidden, gates)
        flops = 2.0 * steps * rows * weights
        with self.repeat(directions):
            self.linear(steps * rows, input_size, gates * hidden, bias=False)
            self.parameters(weights)
            self.parameters(bias_tensors * gates * hidden, bias_tensors)
            moved = {"reads": weights + (gates + 2) * state, "writes": 2.0 * state}
            self.emit(Kind.RNN, FORWARD, dims, flops=flops, kernels=launches, **moved)
            if self._backward:
                self.emit(Kind.RNN, DATA_GRADIENT, dims, flops=flops, kernels=launches, **moved)
            if self._trainable:
                self.emit(
                    Kind.GEMM, WEIGHT_GRADIENT, (hidden, gates * hidden, steps * rows),
                    flops=flops, reads=state * (1 + gates), writes=weights,
                )  # fmt: skip

    # --- memory-bound work ------------------------------------------------------------------

    def elementwise(
        self,
        elements: float,
        *,
        reads: float = 1.0,
        writes: float = 1.0,
        backward_reads: float | None = None,
        backward_writes: float = 1.0,
        kernels: float = 1.0,
        backward_kernels: float | None = None,
    ) -> None:
        """``elements`` outputs; reads and writes are per output element, each way.

        By default the backward reads one more tensor than the forward (the saved input).
        ``backward_writes=0`` means there is no backward operator.
        """
        cols = int(elements)
        self.emit(
            Kind.ELEMENTWISE, FORWARD, (1, cols),
            reads=reads * elements, writes=writes * elements, kernels=kernels,
        )  # fmt: skip
        if self._backward and backward_writes:
            back = reads + 1 if backward_reads is None else backward_reads
            self.emit(
                Kind.ELEMENTWISE, DATA_GRADIENT, (1, cols),
                reads=back * elements, writes=backward_writes * elements,
                kernels=kernels if backward_kernels is None else backward_kernels,
            )  # fmt: skip

    def activation(self, x: Feature | float) -> None:
        """ReLU, GELU, SiLU ...: one read and one write forward, two reads and one write back."""
        self.elementwise(self._elements(x))

    def add(self, x: Feature | float) -> None:
        """Residual addition; its gradient is one addition where the branches join again."""
        self.elementwise(self._elements(x), reads=2, backward_reads=2)

    def multiply(self, x: Feature | float) -> None:
        """Product of two activations (gating); both gradients."""
        self.elementwise(self._elements(x), reads=2, backward_reads=3, backward_writes=2)

    def dropout(self, x: Feature | float) -> None:
        """Dropout with a one-byte mask (a quarter of an element)."""
        self.elementwise(self._elements(x), writes=1.25, backward_reads=1.25)

    def concat(self, x: Feature | float) -> None:
        """Copy into a concatenated tensor of this size; the backward copies out again."""
        self.elementwise(self._elements(x), backward_reads=1)

    def upsample(self, x: Feature, size: tuple[int, ...]) -> Feature:
        """Interpolate to ``size``."""
        out = Feature(x.channels, size)
        ratio = x.positions / out.positions
        self.elementwise(self._elements(out), reads=ratio, backward_reads=1, backward_writes=ratio)
        return out

    def batch_norm(self, x: Feature, *, affine: bool = True) -> None:
        """Batch norm in training: statistics, then normalisation."""
        self._norm(Kind.BATCH_NORM, self.batch_size * x.positions, x.channels, affine)

    def instance_norm(self, x: Feature, *, affine: bool = True) -> None:
        """Instance or group norm."""
        self._norm(Kind.INSTANCE_NORM, self.batch_size * x.positions, x.channels, affine)

    def layer_norm(self, rows: int, width: int, *, bias: bool = True) -> None:
        """Layer norm (RMS norm with ``bias=False``) of ``rows`` rows."""
        self.parameters(width)
        if bias:
            self.parameters(width)
        n = rows * width
        self.emit(Kind.LAYER_NORM, FORWARD, (rows, width), reads=n, writes=n)
        if self._backward:
            self.emit(
                Kind.LAYER_NORM, DATA_GRADIENT, (rows, width), reads=3 * n, writes=n, kernels=2
            )

    def _norm(self, kind: Kind, rows: int, channels: int, affine: bool) -> None:
        if affine:
            self.parameters(2 * channels, 2)
        n = rows * channels
        self.emit(kind, FORWARD, (rows, channels), reads=2 * n, writes=n)
        if self._backward:
            self.emit(kind, DATA_GRADIENT, (rows, channels), reads=4 * n, writes=n)

    def softmax(self, rows: int, cols: int) -> None:
        """Softmax over ``cols`` for each of ``rows`` rows."""
        n = rows * cols
        self.emit(Kind.SOFTMAX, FORWARD, (rows, cols), reads=n, writes=n)
        if self._backward:
            self.emit(Kind.SOFTMAX, DATA_GRADIENT, (rows, cols), reads=2 * n, writes=n)

    def cross_entropy(self, rows: int, classes: int) -> None:
        """Log-softmax and negative log-likelihood over ``classes``."""
        n = rows * classes
        self.emit(Kind.LOSS, FORWARD, (rows, classes), reads=2 * n, writes=n, kernels=2)
        if self._backward:
            self.emit(Kind.LOSS, DATA_GRADIENT, (rows, classes), reads=2 * n, writes=n, kernels=2)

    def regression_loss(self, elements: int, *, kernels: float = 4.0) -> None:
        """A pointwise loss (MSE, L1, BCE, dice): few launches over ``elements``."""
        n = float(elements)
        self.emit(Kind.LOSS, FORWARD, (1, elements), reads=kernels * n, writes=n, kernels=kernels)
        if self._backward:
            self.emit(
                Kind.LOSS, DATA_GRADIENT, (1, elements), reads=2 * n, writes=n, kernels=kernels
            )

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
        k = _axes(kernel, rank)
        s = k if stride is None else _axes(stride, rank)
        extra = tuple(t - 1 if ceil else 0 for t in s)
        out = Feature(
            x.channels,
            tuple(
                (n + 2 * padding - a + e) // t + 1
                for n, a, t, e in zip(x.size, k, s, extra, strict=True)
            ),
        )
        self._pool(x, out)
        return out

    def global_pool(self, x: Feature) -> Feature:
        """Average over all positions."""
        out = Feature(x.channels, (1,) * len(x.size))
        self._pool(x, out)
        return out

    def _pool(self, x: Feature, out: Feature) -> None:
        a, c = self._elements(x), self._elements(out)
        dims = (self.batch_size * out.positions, x.channels)
        self.emit(Kind.POOL, FORWARD, dims, reads=a, writes=c)
        if self._backward:
            self.emit(Kind.POOL, DATA_GRADIENT, dims, reads=2 * c, writes=a)

    def embedding(
        self, rows: int, width: int, vocab: int, *, sparse: bool = False, shared: bool = False
    ) -> None:
        """Look up ``rows`` rows of a ``vocab x width`` table.

        A dense gradient is written over the whole table; a ``sparse`` one only where rows were
        read (recommendation tables), and such a table is never all-reduced.
        """
        if not shared:
            self.parameters(vocab * width, sparse=sparse)
        n = rows * width
        self.emit(Kind.EMBEDDING, FORWARD, (rows, width), reads=n, writes=n)
        if self._trainable:
            table = 0 if sparse else vocab * width
            self.emit(
                Kind.EMBEDDING, WEIGHT_GRADIENT, (rows, width),
                reads=2 * n, writes=n + table, kernels=2,
            )  # fmt: skip

    def _elements(self, x: Feature | float) -> float:
        return self.batch_size * x.elements if isinstance(x, Feature) else x
