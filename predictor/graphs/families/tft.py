"""Temporal fusion transformer: variable selection, LSTM, interpretable attention, quantiles.

Lim et al. arXiv 1912.09363; layer order of NVIDIA DeepLearningExamples.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from . import Workload, family


@family("tft")
def tft(
    b: GraphBuilder,
    work: Workload,
    *,
    static_vocab: int,
    hidden: int = 128,
    heads: int = 4,
    encoder_fraction: float = 0.875,
    known_inputs: int = 3,
    targets: int = 1,
    quantiles: int = 3,
) -> None:
    """One sample is a window of ``work.tokens`` time steps of one series.

    ``encoder_fraction`` of the window is history, the rest is the horizon.
    """
    steps, batch = work.tokens, b.batch_size
    past = round(steps * encoder_fraction)
    horizon = steps - past
    b.input(steps * (known_inputs + targets + 1))
    b.embedding(batch, hidden, static_vocab)
    inputs = known_inputs + targets
    b.parameters(2 * inputs * hidden, 4)
    b.elementwise(batch * steps * inputs * hidden, kernels=2, backward_reads=2)
    _select(b, batch, hidden, 1, context=False)
    with b.repeat(4):
        _grn(b, batch, hidden, hidden)
    _select(b, batch * past, hidden, inputs)
    b.rnn(past, hidden, hidden)
    _select(b, batch * horizon, hidden, known_inputs)
    b.rnn(horizon, hidden, hidden)
    rows, out = batch * steps, batch * horizon
    b.concat(2 * rows * hidden)
    _gate(b, rows, hidden)
    _grn(b, rows, hidden, hidden, context_rows=batch)
    _attention(b, steps, hidden, heads)
    _gate(b, out, hidden)
    _grn(b, out, hidden, hidden)
    _gate(b, out, hidden)
    b.linear(out, hidden, quantiles)
    b.regression_loss(out * quantiles, kernels=8)


def _glu(b: GraphBuilder, rows: int, width: int, out: int) -> None:
    b.linear(rows, width, 2 * out)
    b.elementwise(rows * out, reads=2, backward_reads=3, backward_writes=2)


def _gate(b: GraphBuilder, rows: int, hidden: int) -> None:
    """Gated linear unit, residual, layer norm."""
    _glu(b, rows, hidden, hidden)
    b.add(rows * hidden)
    b.layer_norm(rows, hidden)


def _grn(
    b: GraphBuilder,
    rows: int,
    width: int,
    hidden: int,
    *,
    out: int | None = None,
    context_rows: int = 0,
    dropout: bool = True,
) -> None:
    """Gated residual network; ``out`` projects the residual as well."""
    b.linear(rows, width, hidden)
    if context_rows:
        b.linear(context_rows, hidden, hidden, bias=False)
        b.elementwise(rows * hidden, reads=1, backward_reads=1, backward_writes=0.1)
    b.activation(rows * hidden)
    b.linear(rows, hidden, hidden)
    if dropout:
        b.dropout(rows * hidden)
    _glu(b, rows, hidden, out or hidden)
    if out is not None:
        b.linear(rows, width, out)
    b.add(rows * (out or hidden))
    if out != 1:
        b.layer_norm(rows, out or hidden)


def _select(
    b: GraphBuilder, rows: int, hidden: int, variables: int, *, context: bool = True
) -> None:
    """Weights of the variables from all of them together, a network for each, their mixture."""
    _grn(
        b,
        rows,
        hidden * variables,
        hidden,
        out=variables,
        context_rows=b.batch_size if context else 0,
        dropout=False,
    )
    if not context:
        b.parameters(hidden * hidden)  # declared, never given a context
    b.softmax(rows, variables)
    with b.repeat(variables):
        b.elementwise(rows * hidden, reads=1, backward_reads=1)  # slice
        _grn(b, rows, hidden, hidden)
    b.concat(rows * hidden * variables)
    b.batched_matmul(rows, hidden, 1, variables)


def _attention(b: GraphBuilder, steps: int, hidden: int, heads: int) -> None:
    """Heads share their values; the output is their mean."""
    rows, dim = b.batch_size * steps, hidden // heads
    b.linear(rows, hidden, (2 * heads + 1) * dim, bias=False)
    b.elementwise(2 * rows * hidden, reads=1, backward_reads=1, kernels=2)
    b.elementwise(b.batch_size * heads * steps * steps, reads=1, backward_reads=1)  # causal mask
    b.attention(heads, steps, steps, dim, dropout=False)
    b.elementwise(rows * dim, reads=heads, backward_reads=1, backward_writes=heads)
    b.linear(rows, dim, hidden, bias=False)
    b.dropout(rows * hidden)
