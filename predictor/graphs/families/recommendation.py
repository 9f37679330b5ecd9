"""Recommendation: DLRM and DCNv2, NeuMF, Wide & Deep, SIM, autoencoders over liked items.

Naumov et al. arXiv 1906.00091 (pairwise dot interaction); Wang et al. arXiv 2008.13535 (low-rank
cross network); He et al. arXiv 1708.05031; Cheng et al. arXiv 1606.07792; Pi et al. arXiv
2006.05639; Zhou et al. arXiv 1809.03672 (DIEN); Liang et al. arXiv 1802.05814 (VAE-CF); Recoder
(amoussawi/recoder).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import GraphBuilder
from ..operator import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, Kind


def dlrm(
    b: GraphBuilder,
    table_rows: Sequence[int],
    emb_dim: int = 128,
    dense_fields: int = 13,
    bottom_mlp: Sequence[int] = (512, 256, 128),
    top_mlp: Sequence[int] = (1024, 1024, 512, 256, 1),
    dcn_layers: int = 0,
    low_rank: int = 512,
    ids_per_sample: int | None = None,
) -> None:
    """One sample is an impression; ``ids_per_sample`` exceeds the tables where they are multi-hot.

    ``dcn_layers=0`` is DLRM's pairwise dot, which NVIDIA's scripts and HugeCTR have a kernel for
    that is bound by memory, otherwise DCNv2's cross network. Tables are updated by row: their
    gradients are sparse.
    """
    rows, tables = b.batch_size, len(table_rows)
    ids, vectors = ids_per_sample or tables, tables + 1
    width = vectors * emb_dim
    b.input(dense_fields + ids + 1)
    b.embedding(rows * ids, emb_dim, sum(table_rows), sparse=True, bag=ids / tables)
    _mlp(b, rows, (dense_fields, *bottom_mlp), data_gradient=False)
    b.concat(rows * width)
    if dcn_layers:
        with b.repeat(dcn_layers):  # x0 * (U V x + bias) + x
            b.linear(rows, width, low_rank, bias=False)
            b.linear(rows, low_rank, width)
            b.multiply(rows * width)
            b.add(rows * width)
    else:  # one kernel: products of all pairs, their lower triangle beside the dense vector, padded
        joined, width = width, -(-(vectors * (vectors - 1) // 2 + emb_dim) // 8) * 8
        read, made, flops = rows * joined, rows * width, 2.0 * rows * vectors * joined
        b.emit(Kind.ELEMENTWISE, FORWARD, (1, rows), flops, read, made)
        b.emit(Kind.ELEMENTWISE, DATA_GRADIENT, (1, rows), 2 * flops, read + made, read)
    _mlp(b, rows, (width, *top_mlp), last_activation=False)
    b.regression_loss(rows)


def _mlp(
    b: GraphBuilder,
    rows: int,
    widths: Sequence[int],
    *,
    data_gradient: bool = True,
    last_activation: bool = True,
    dropout: bool = False,
) -> None:
    """Linear layers with ReLU between; the bias gradient and ReLU are kernels of their own."""
    last = len(widths) - 2
    for layer, (width, out) in enumerate(pairwise(widths)):
        b.linear(rows, width, out, data_gradient=data_gradient or layer > 0)
        if layer < last or last_activation:
            b.activation(rows * out)
            if dropout:
                b.dropout(rows * out)


def ncf(
    b: GraphBuilder,
    users: int = 138493,
    items: int = 26744,
    mf_dim: int = 64,
    mlp_layers: Sequence[int] = (256, 256, 128, 64),
) -> None:
    """Matrix factorisation beside a perceptron; one sample is a (user, item) pair.

    The first of ``mlp_layers`` is the two embeddings.
    """
    rows = b.batch_size
    b.input(3)
    for width in (mf_dim, mlp_layers[0] // 2):
        b.embedding(rows, width, users)
        b.embedding(rows, width, items)
    b.multiply(rows * mf_dim)
    b.concat(rows * mlp_layers[0])
    _mlp(b, rows, mlp_layers, dropout=True)
    joined = mf_dim + mlp_layers[-1]
    b.concat(rows * joined)
    b.linear(rows, joined, 1)
    b.regression_loss(rows)


def wide_and_deep(
    b: GraphBuilder,
    hidden_layers: int = 5,
    hidden: int = 1024,
    dense_fields: int = 13,
    tables: Sequence[Sequence[int]] = (),
    deep_vocab: int | None = None,
    deep_embedding_vec: int = 16,
    deep_sparse_fields: int = 26,
    wide_sparse_fields: int = 2,
) -> None:
    """A linear model on sparse fields beside a perceptron on their embeddings.

    One sample is an impression. ``tables`` are (width, rows): every column has its table and its
    linear weights with dense gradients (Outbrain), unless ``deep_vocab`` is given: equal embedding
    widths, tables by row (Criteo).
    """
    rows, wide, width = b.batch_size, wide_sparse_fields, dense_fields
    if deep_vocab is None:
        b.input(dense_fields + len(tables) + 1)
        for size, vocab in tables:
            b.embedding(rows, size, vocab)
            width += size
        with b.repeat(len(tables)):
            b.embedding(rows, 1, 0)
        b.parameters(sum(vocab for _, vocab in tables) + dense_fields + 1, len(tables) + 2)
    else:
        width += deep_sparse_fields * deep_embedding_vec
        b.input(dense_fields + deep_sparse_fields + wide + 1)
        b.embedding(rows * wide, 1, deep_vocab, sparse=True)
        b.embedding(rows * deep_sparse_fields, deep_embedding_vec, deep_vocab, sparse=True)
    b.elementwise(rows, reads=wide)
    b.concat(rows * width)
    widths, dropout = (width, *[hidden] * hidden_layers, 1), deep_vocab is not None
    _mlp(b, rows, widths, last_activation=False, dropout=dropout)
    b.add(rows)
    b.regression_loss(rows)


def sim(b: GraphBuilder, table_rows: Sequence[int], emb_dim: int = 16) -> None:
    """Search-based interest model: attention over a long history, DIEN over the short one.

    One sample is an impression with the user's history of 90 and 10 items of two features;
    histories share the item's tables.
    """
    rows, item, hidden = b.batch_size, 2 * emb_dim, 6 * emb_dim
    long, short, best = 90, 10, 50
    looked_up = long + 2 * short + 2

    def attend(length: int) -> None:
        """Dot products of the target with the history, softmax, weighted sum: element-wise."""
        cells = rows * length
        for turn in ("scores", "sum"):
            b.elementwise(cells * item, backward_reads=2, backward_writes=2)
            b.elementwise(cells, reads=item, backward_reads=1, backward_writes=item)
            if turn == "scores":
                b.elementwise(cells, reads=2, kernels=2)  # mask
                b.softmax(rows, length)

    def score(
        rows: int, widths: Sequence[int], *, prelu: bool = False, shared: bool = False
    ) -> None:
        """Layers with sigmoid, or with PReLU and its learned slopes, between; one score."""
        for width, out in pairwise(widths):
            b.linear(rows, width, out, shared=shared)
            b.activation(rows * out)
            if prelu:
                b.parameters(out)
        b.linear(rows, widths[-1], 1, shared=shared)

    b.input(2 * looked_up + 2)
    for index, vocab in enumerate(table_rows):
        b.embedding(rows * (looked_up if index < 2 else 2), emb_dim, vocab)
    b.elementwise(rows * (long + 2 * short) * item, reads=1, kernels=3)  # masks
    attend(long)
    score(rows, (2 * item + emb_dim, 200), prelu=True)
    b.elementwise(rows * long, kernels=4, backward_writes=0)  # best items: a sort
    b.concat(rows * best * item)
    attend(best)
    b.elementwise(rows * item, reads=best, backward_writes=best, kernels=3)  # mean
    # a fused GRU, an attention network, and an unfused GRU whose gate the attention scales
    b.rnn(short, item, hidden, gates=3)
    cells = rows * short
    b.linear(rows, item, hidden)
    b.parameters(hidden)  # slopes of the PReLU
    b.elementwise(rows * hidden)
    b.concat(4 * cells * hidden)
    b.elementwise(2 * cells * hidden, kernels=2)  # difference and product
    score(cells, (4 * hidden, 80, 40))
    b.softmax(rows, short)
    b.rnn(short, hidden, hidden, gates=3, bias_tensors=1, fused=False)
    pairs = rows * (short - 1)
    for negative in (False, True):
        b.concat(pairs * (item + hidden))
        score(pairs, (item + hidden, 100, 50), shared=negative)
    score(rows, (3 * item + hidden + emb_dim, 200, 80), prelu=True)
    b.regression_loss(rows, kernels=16)


def autoencoder(
    b: GraphBuilder,
    items: int,
    widths: Sequence[int],
    variational: bool,
    items_per_user: int,
    sparse_input: bool,
) -> None:
    """One sample is a user with ``items_per_user`` items.

    ``widths`` lead from the first hidden layer to the code. VAE-CF is ``variational`` with a
    multinomial likelihood, Recoder has one hidden layer, logistic loss, and a first layer that
    multiplies a sparse matrix (``sparse_input``).
    """
    rows = b.batch_size
    first, code = widths[0], widths[-1]
    b.input(2 * items_per_user)
    if sparse_input:
        # the non-zeros of a row gather and scatter rows of the weights
        b.parameters(items * first + first, 2)
        moved, dims = float(rows * items_per_user * first), (rows * items_per_user, first)
        b.emit(Kind.EMBEDDING, FORWARD, dims, 2.0 * moved, moved, rows * first, 2)
        summed = moved + items * first
        b.emit(Kind.EMBEDDING, WEIGHT_GRADIENT, dims, 2.0 * moved, moved, summed, 3)
    else:
        b.elementwise(rows * items, reads=2, writes=1, backward_writes=0, kernels=2)  # normalise
        b.elementwise(rows * items, writes=1.25, backward_writes=0, function="dropout")  # noise
        b.linear(rows, items, first, data_gradient=False)
    b.activation(rows * first)
    for width, out in pairwise(widths):
        doubled = 2 if variational and out == code else 1
        b.dense(rows, width, doubled * out)
    if variational:
        b.elementwise(rows * code, reads=3, backward_writes=2, kernels=4)  # sample the code
    _mlp(b, rows, widths[::-1])
    b.linear(rows, first, items)
    if variational:
        b.cross_entropy(rows, items)
        b.multiply(rows * items)  # log-likelihood against the dense input
    else:
        b.regression_loss(rows * items, kernels=2)
