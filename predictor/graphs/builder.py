"""Emits operators layer by layer; each forward operator brings its gradients with it.

A family builder describes a network in the order of its forward pass. Shapes are explicit: a
``Feature`` is what flows between convolutions, ``rows`` what flows between linear layers. FLOPs
count a multiply-add as two; bias additions, norms and activations count as memory traffic only.
"""

from __future__ import annotations

from math import prod

from .operator import Kind
from .recorder import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, Feature, MemoryLayers, axes

__all__ = ["Feature", "GraphBuilder"]


class GraphBuilder(MemoryLayers):
    """Builds the graph of one micro-step of ``batch_size`` samples: matrix work, and all below."""

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
        k, s = axes(kernel, rank), axes(stride, rank)
        pad = tuple((a - 1) * dilation // 2 for a in k) if padding is None else axes(padding, rank)
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
        k, s = axes(kernel, rank), axes(stride, rank)
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
            Kind.CONV,
            FORWARD,
            (rows_out, cout, cin * volume, *tail),
            flops=flops,
            reads=n_in + weights,
            writes=n_out,
        )
        if bias:
            self.elementwise(n_out, reads=1, backward_writes=0)
        if self._backward and data_gradient:
            self.emit(
                Kind.CONV,
                DATA_GRADIENT,
                (rows_in, cin, cout * volume, *tail),
                flops=flops,
                reads=n_out + weights,
                writes=n_in,
            )
        if self._trainable:
            self.emit(
                Kind.CONV,
                WEIGHT_GRADIENT,
                (cin * volume, cout, rows_out, *tail),
                flops=flops,
                reads=n_out + n_in,
                writes=weights,
            )

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
            Kind.GEMM,
            FORWARD,
            (rows, out_features, in_features),
            flops=flops,
            reads=a + weights,
            writes=c,
        )
        if self._backward and data_gradient:
            self.emit(
                Kind.GEMM,
                DATA_GRADIENT,
                (rows, in_features, out_features),
                flops=flops,
                reads=c + weights,
                writes=a,
            )
        if self._trainable:
            self.emit(
                Kind.GEMM,
                WEIGHT_GRADIENT,
                (in_features, out_features, rows),
                flops=flops,
                reads=a + c,
                writes=weights,
            )
            if bias:
                self.emit(Kind.ELEMENTWISE, WEIGHT_GRADIENT, (rows, out_features), reads=c)

    def batched_matmul(self, batch: int, m: int, n: int, k: int) -> None:
        """``batch`` products A[m,k] B[k,n] of two activations, and both gradients."""
        flops = 2.0 * batch * m * n * k
        a, b, c = batch * m * k, batch * k * n, batch * m * n
        self.emit(Kind.BATCHED_GEMM, FORWARD, (m, n, k, batch), flops=flops, reads=a + b, writes=c)
        if self._backward:
            self.emit(
                Kind.BATCHED_GEMM,
                DATA_GRADIENT,
                (m, k, n, batch),
                flops=flops,
                reads=c + b,
                writes=a,
            )
            self.emit(
                Kind.BATCHED_GEMM,
                DATA_GRADIENT,
                (k, n, m, batch),
                flops=flops,
                reads=c + a,
                writes=b,
            )

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
        dims = (query_len, key_len, head_dim, n)
        self.emit(Kind.ATTENTION, FORWARD, dims, flops=flops, reads=q + kv, writes=q)
        if self._backward:
            self.emit(
                Kind.ATTENTION,
                DATA_GRADIENT,
                dims,
                flops=2.5 * flops,
                reads=3 * q + kv,
                writes=q + kv,
                kernels=2,
            )

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
            for direction in (FORWARD, DATA_GRADIENT)[: 1 + self._backward]:
                self.emit(
                    Kind.RNN,
                    direction,
                    dims,
                    flops=flops,
                    kernels=launches,
                    reads=weights + (gates + 2) * state,
                    writes=2.0 * state,
                )
            if self._trainable:
                self.emit(
                    Kind.GEMM,
                    WEIGHT_GRADIENT,
                    (hidden, gates * hidden, steps * rows),
                    flops=flops,
                    reads=state * (1 + gates),
                    writes=weights,
                )
