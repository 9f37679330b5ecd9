"""Building blocks that image transformers share: patches, attention, feed-forward, heads."""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..operator import Direction, Kind
from . import Workload
from .image import image_input


def patches(b: GraphBuilder, work: Workload, width: int, patch: int) -> Feature:
    """The image cut into patches of ``patch`` pixels, one linear map of each, as rows."""
    x = b.conv(
        image_input(b, work), width, patch, stride=patch, padding=0, bias=True, data_gradient=False
    )
    b.concat(x)
    return x


def positions(b: GraphBuilder, rows: int, tokens: int, width: int) -> None:
    """A learned vector per token, added to ``rows`` rows."""
    b.parameters(tokens * width)
    b.elementwise(rows * width, backward_reads=1)


def special_tokens(b: GraphBuilder, count: int, tokens: int, width: int) -> None:
    """``count`` learned tokens put in front; ``tokens`` is the number with them."""
    b.parameters(count * width, count)
    b.concat(b.batch_size * tokens * width)


def attention(
    b: GraphBuilder,
    work: Workload,
    tokens: int,
    width: int,
    heads: int,
    *,
    batch: int | None = None,
    bias: bool = True,
    score_terms: int = 0,
) -> None:
    """Self-attention of ``batch`` groups of ``tokens`` rows, projections included.

    ``score_terms`` counts tensors added to (or multiplied into) the scores; ``bias`` is that of
    query, key and value.
    """
    groups = b.batch_size if batch is None else batch
    rows = groups * tokens
    b.linear(rows, width, 3 * width, bias=bias)
    scores(b, work, groups, heads, tokens, tokens, width // heads, terms=score_terms)
    b.linear(rows, width, width)


def scores(
    b: GraphBuilder,
    work: Workload,
    groups: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    *,
    terms: int = 0,
) -> None:
    """Attention over projected rows with the layout copies of eager code."""
    if not work.flash_attention:
        b.concat(groups * heads * (queries + 2 * keys) * head_dim)
    for _ in range(terms):
        b.elementwise(groups * heads * queries * keys, backward_reads=1)
    b.attention(
        heads, queries, keys, head_dim, batch=groups, flash=work.flash_attention, dropout=False
    )
    b.concat(groups * heads * queries * head_dim)


def class_attention(
    b: GraphBuilder, work: Workload, tokens: int, width: int, heads: int, *, bias: bool = True
) -> None:
    """Attention of the first of ``tokens`` rows of each sample to all of them (CaiT)."""
    b.linear(b.batch_size, width, width, bias=bias)
    for _ in range(2):
        b.linear(b.batch_size * tokens, width, width, bias=bias)
    scores(b, work, b.batch_size, heads, 1, tokens, width // heads)
    b.linear(b.batch_size, width, width)


def unit_length(b: GraphBuilder, rows: int, width: int) -> None:
    """Each of ``rows`` vectors divided by its length, which torch.autocast takes in FP32.

    Conversion, length, division and conversion back forward; their eight launches backward.
    """
    n = rows * width
    norm = Kind.LAYER_NORM
    b.emit(norm, Direction.FORWARD, (rows, width), reads=2.5 * n, writes=2 * n, kernels=5)
    b.emit(norm, Direction.DATA_GRADIENT, (rows, width), reads=6 * n, writes=4 * n, kernels=8)


def feed_forward(
    b: GraphBuilder, rows: int, width: int, hidden: int, out: int | None = None
) -> None:
    """Two linear layers with an activation between."""
    b.linear(rows, width, hidden)
    b.activation(rows * hidden)
    b.linear(rows, hidden, width if out is None else out)


def weighted(b: GraphBuilder, elements: int, width: int) -> None:
    """Multiply by a learned value per channel (layer scale)."""
    b.parameters(width)
    b.elementwise(elements, backward_reads=4, backward_writes=2, backward_kernels=3)


def residual(b: GraphBuilder, elements: int, width: int = 0) -> None:
    """Add a branch to the trunk, weighted per channel where ``width`` is given."""
    if width:
        weighted(b, elements, width)
    b.add(elements)


def linear_classifier(b: GraphBuilder, width: int, classes: int, *, heads: int = 1) -> None:
    """A linear layer (one per token that classifies) and cross entropy."""
    for _ in range(heads):
        b.linear(b.batch_size, width, classes)
        b.cross_entropy(b.batch_size, classes)


def encoder_layer(
    b: GraphBuilder,
    work: Workload,
    tokens: int,
    width: int,
    heads: int,
    *,
    hidden: int = 0,
    batch: int | None = None,
    bias: bool = True,
    scale: bool = False,
    score_terms: int = 0,
    post_norm: bool = False,
) -> None:
    """Attention and feed-forward (``hidden`` 0: four times ``width``), each with norm and residual.

    ``scale`` weights the branches per channel; ``post_norm`` norms what comes out of a branch.
    """
    rows = (b.batch_size if batch is None else batch) * tokens
    for branch in ("attention", "feed_forward"):
        if not post_norm:
            b.layer_norm(rows, width)
        if branch == "attention":
            attention(
                b, work, tokens, width, heads, batch=batch, bias=bias, score_terms=score_terms
            )
        else:
            feed_forward(b, rows, width, hidden or 4 * width)
        if post_norm:
            b.layer_norm(rows, width)
        residual(b, rows * width, width if scale else 0)


def distance_bias(
    b: GraphBuilder, size: tuple[int, ...], hidden: int, heads: int, tokens: int
) -> None:
    """A two-layer network from log distances in two axes to a bias of every pair of tokens."""
    distances = (2 * size[0] - 1) * (2 * size[1] - 1)
    b.linear(distances, 2, hidden, data_gradient=False)
    b.activation(distances * hidden)
    b.dropout(distances * hidden)
    b.linear(distances, hidden, heads)
    b.elementwise(heads * tokens**2, kernels=3)
