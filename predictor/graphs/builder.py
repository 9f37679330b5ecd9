"""Emits operators layer by layer; each forward operator brings its gradients with it.

A family builder describes a network in the order of its forward pass. Shapes are explicit: a
``Feature`` is what flows between convolutions, ``rows`` what flows between linear layers. FLOPs
count a multiply-add as two; bias additions, norms and activations count as memory traffic only.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from ..errors import GraphError
from .operator import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, Kind
from .recorder import ELEMENTWISE, Feature, MemoryLayers, axes

__all__ = ["BIASED", "Feature", "GraphBuilder", "Options"]

Dims = tuple[int, ...]
Options = dict[str, Any]  # keywords that several layers of a network share
BIASED: Options = {"norm": "none", "bias": True}  # of ``conv_norm``: a convolution and a function
CONV, GEMM, BATCHED_GEMM = Kind.CONV, Kind.GEMM, Kind.BATCHED_GEMM


@lru_cache(maxsize=4096)
def _window(
    size: Dims, kernel: int | Dims, stride: int | Dims, padding: int | Dims | None, dilation: int
) -> tuple[Dims, int, int]:
    """Size of what a convolution gives, positions under its kernel and in a stride."""
    rank = len(size)
    k, s = axes(kernel, rank), axes(stride, rank)
    pad = tuple((a - 1) * dilation // 2 for a in k) if padding is None else axes(padding, rank)
    sizes = zip(size, pad, k, s, strict=True)
    out = tuple((n + 2 * p - dilation * (a - 1) - 1) // t + 1 for n, p, a, t in sizes)
    if min(out, default=1) < 1:
        found, window = ("x".join(map(str, each)) for each in (size, k))
        said = "image_size or seq_len is too small for the layers of this model"
        raise GraphError(f"{said}: {found} is left for a window of {window}")
    return out, prod(k), prod(s)


class GraphBuilder(MemoryLayers):
    """Builds the graph of the micro-step ``work``: matrix work, and all that is below."""

    def conv(
        self,
        x: Feature,
        out_channels: int,
        kernel: int | Dims,
        *,
        stride: int | Dims = 1,
        padding: int | Dims | None = None,
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
        size, volume, steps = _window(x.size, kernel, stride, padding, dilation)
        out = Feature(out_channels, size)
        tail = (groups, volume, steps)
        self._convolution(x, out, tail, bias, shared, data_gradient, out.positions)
        return out

    def conv_norm(
        self,
        x: Feature,
        channels: int,
        kernel: int | Dims,
        *,
        norm: str = "batch",
        act: str = "relu",
        **conv: Any,
    ) -> Feature:
        """Convolution (``conv``: as there), norm and, unless it is empty, the function ``act``."""
        y = self.conv(x, channels, kernel, **conv)
        self.norm(y, norm)
        if act:
            self.activation(y, act)
        return y

    def conv_transpose(
        self,
        x: Feature,
        out_channels: int,
        kernel: int | Dims,
        *,
        stride: int | Dims,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = False,
        groups: int = 1,
        shared: bool = False,
    ) -> Feature:
        """Transposed convolution; its FLOPs are counted at the INPUT positions."""
        rank = len(x.size)
        k, s = axes(kernel, rank), axes(stride, rank)
        sizes = zip(x.size, k, s, strict=True)
        size = tuple((n - 1) * t - 2 * padding + a + output_padding for n, a, t in sizes)
        out = Feature(out_channels, size)
        self._convolution(x, out, (groups, prod(k), prod(s)), bias, shared, True, x.positions)
        return out

    def _convolution(
        self,
        x: Feature,
        out: Feature,
        tail: tuple[int, int, int],
        bias: bool,
        shared: bool,
        data_gradient: bool,
        macs_positions: int,
    ) -> None:
        groups, volume, _ = tail
        cin, cout = x.channels // groups, out.channels // groups
        weights = out.channels * cin * volume
        if not shared:
            self.parameters(weights + out.channels * bool(bias), 1 + bool(bias))
        n_in, n_out = self.batch_size * x.elements, self.batch_size * out.elements
        flops = 2.0 * self.batch_size * macs_positions * cout * cin * volume * groups
        rows_in, rows_out = self.batch_size * x.positions, self.batch_size * out.positions
        dims = (rows_out, cout, cin * volume, *tail)
        self.emit(CONV, FORWARD, dims, flops=flops, reads=n_in + weights, writes=n_out)
        if bias:
            self.elementwise(n_out, backward_writes=0)
        into = (rows_in, cin, cout * volume, *tail) if data_gradient else None
        onto = (cin * volume, cout, rows_out, *tail)
        self._gradients(CONV, into, onto, flops, n_in, weights, n_out)

    def _gradients(
        self, kind: Kind, into: Dims | None, onto: Dims, flops: float, *moved: float
    ) -> None:
        """Gradients of a product with weights: ``into`` its input, if any, ``onto`` its weights."""
        inputs, weights, outputs = moved
        if into and self._backward:
            self.emit(kind, DATA_GRADIENT, into, flops, outputs + weights, inputs)
        if self._trainable:
            self.emit(kind, WEIGHT_GRADIENT, onto, flops, outputs + inputs, weights)

    def linear(
        self,
        rows: int,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        shared: bool = False,
        data_gradient: bool = True,
        matrices: int = 1,
    ) -> None:
        """Fully connected layer on ``rows`` rows of the whole micro-batch.

        The bias is added inside the GEMM; its gradient is a reduction of its own. ``shared``
        reuses weights already counted (tied embeddings). One kernel multiplies the rows of each of
        several ``matrices`` (experts).
        """
        weights, wide = in_features * out_features * matrices, out_features * matrices
        if not shared:
            self.parameters(weights + wide * bool(bias), matrices * (1 + bool(bias)))
        flops = 2.0 * rows * weights
        a, c = rows * in_features * matrices, rows * wide
        dims = (rows, wide, in_features)
        self.emit(GEMM, FORWARD, dims, flops=flops, reads=a + weights, writes=c)
        into = (rows, in_features * matrices, out_features) if data_gradient else None
        onto = (in_features, wide, rows)
        self._gradients(GEMM, into, onto, flops, a, weights, c)
        if bias and self._trainable:
            self.emit(ELEMENTWISE, WEIGHT_GRADIENT, (rows, wide), reads=c)

    def dense(self, rows: int, in_features: int, out_features: int, act: str = "relu") -> None:
        """Fully connected layer with the function ``act`` behind it."""
        self.linear(rows, in_features, out_features)
        self.activation(rows * out_features, act)

    def batched_matmul(self, batch: int, m: int, n: int, k: int) -> None:
        """``batch`` products A[m,k] B[k,n] of two activations, and both gradients."""
        flops = 2.0 * batch * m * n * k
        a, b, c = batch * m * k, batch * k * n, batch * m * n
        kind = BATCHED_GEMM
        self.emit(kind, FORWARD, (m, n, k, batch), flops=flops, reads=a + b, writes=c)
        if self._backward:
            for dims, other, into in (((m, k, n, batch), b, a), ((k, n, m, batch), a, b)):
                self.emit(kind, DATA_GRADIENT, dims, flops=flops, reads=c + other, writes=into)

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
        fused_softmax: bool = False,
    ) -> None:
        """Scaled dot-product attention of ``batch`` samples (default: the micro-batch).

        Unfused: two batched GEMMs with scale + mask, softmax (one kernel where ``fused_softmax``)
        and dropout over the full score matrix, causal or not. ``flash``: one fused operator each
        way that never writes the scores, skips the masked half when ``causal``, and recomputes the
        forward product in its backward (2.5 times the forward FLOPs: Dao et al., arXiv 2205.14135).
        """
        n = (self.batch_size if batch is None else batch) * heads
        scores = n * query_len * key_len
        if not flash:
            self.batched_matmul(n, query_len, key_len, head_dim)
            if not fused_softmax:
                self.elementwise(scores, reads=1, function="scale")
            self.softmax(n * query_len, key_len)
            if dropout:
                self.dropout(scores)
            self.batched_matmul(n, query_len, head_dim, key_len)
            return
        flops = 4.0 * scores * head_dim * (0.5 if causal else 1.0)
        q, kv = n * query_len * head_dim, 2 * n * key_len * head_dim
        cost: Options = {"flops": flops, "backward_flops": 2.5 * flops, "backward_kernels": 2}
        dims, moved, back = (query_len, key_len, head_dim, n), (q + kv, q), (3 * q + kv, q + kv)
        self.both(Kind.ATTENTION, dims, moved, back, **cost)

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
            moved = weights + (gates + 2) * state, 2.0 * state
            cost: Options = {"kernels": launches, "flops": flops, "backward_flops": flops}
            self.both(Kind.RNN, dims, moved, moved, **cost)
            if self._trainable:
                onto, reads = (hidden, gates * hidden, steps * rows), state * (1 + gates)
                self.emit(GEMM, WEIGHT_GRADIENT, onto, flops, reads, weights)
