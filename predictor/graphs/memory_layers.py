"""Memory-bound layers: each forward operator brings its gradients with it."""

from __future__ import annotations

from .operator import Kind
from .recorder import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, Feature, Recorder, axes


class MemoryLayers(Recorder):
    """Element-wise work, norms, softmax, losses, pooling and embeddings."""

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
        function: str = "",
    ) -> None:
        """``elements`` outputs; reads and writes are per output element, each way.

        By default the backward reads one more tensor than the forward (the saved input).
        ``function`` is torch's name, which says what memory keeps for the backward.
        ``backward_writes=0`` means there is no backward operator.
        """
        cols = int(elements)
        self.emit(
            Kind.ELEMENTWISE,
            FORWARD,
            (1, cols),
            reads=reads * elements,
            writes=writes * elements,
            kernels=kernels,
            function=function,
        )
        if self._backward and backward_writes:
            back = reads + 1 if backward_reads is None else backward_reads
            self.emit(
                Kind.ELEMENTWISE,
                DATA_GRADIENT,
                (1, cols),
                reads=back * elements,
                writes=backward_writes * elements,
                kernels=kernels if backward_kernels is None else backward_kernels,
            )

    def activation(self, x: Feature | float, function: str = "relu") -> None:
        """ReLU, GELU, SiLU ...: one read and one write forward, two reads and one write back."""
        self.elementwise(self._elements(x), function=function)

    def add(self, x: Feature | float) -> None:
        """Residual addition; its gradient is one addition where the branches join again."""
        self.elementwise(self._elements(x), reads=2, backward_reads=2, function="add")

    def multiply(self, x: Feature | float) -> None:
        """Product of two activations (gating); both gradients."""
        self.elementwise(
            self._elements(x), reads=2, backward_reads=3, backward_writes=2, function="mul"
        )

    def dropout(self, x: Feature | float) -> None:
        """Dropout with a one-byte mask (a quarter of an element)."""
        self.elementwise(self._elements(x), writes=1.25, backward_reads=1.25, function="dropout")

    def concat(self, x: Feature | float) -> None:
        """Copy into a concatenated tensor of this size; the backward copies out again."""
        self.elementwise(self._elements(x), backward_reads=1, function="cat")

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
        """Instance norm: each channel of each sample by itself."""
        self._norm(Kind.INSTANCE_NORM, self.batch_size * x.positions, x.channels, affine)

    def group_norm(self, x: Feature, *, affine: bool = True) -> None:
        """Group norm; autocast runs it in FP32, other than batch and instance norm."""
        self._norm(Kind.GROUP_NORM, self.batch_size * x.positions, x.channels, affine)

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
        k = axes(kernel, rank)
        s = k if stride is None else axes(stride, rank)
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
        self._pool(x, out, "mean")
        return out

    def _pool(self, x: Feature, out: Feature, function: str = "") -> None:
        a, c = self._elements(x), self._elements(out)
        dims = (self.batch_size * out.positions, x.channels)
        self.emit(Kind.POOL, FORWARD, dims, reads=a, writes=c, function=function)
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
                Kind.EMBEDDING,
                WEIGHT_GRADIENT,
                (rows, width),
                reads=2 * n,
                writes=n + table,
                kernels=2,
            )
