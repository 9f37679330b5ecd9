"""Word language models on LSTM: embedding, stacked LSTM, softmax over the vocabulary.

Zaremba et al. arXiv 1409.2329 (PTB) and the word_language_model of pytorch/examples (WikiText-2).
"""

from __future__ import annotations

from ..builder import GraphBuilder
from . import Workload, family


@family("lstm_lm")
def lstm_lm(
    b: GraphBuilder,
    work: Workload,
    *,
    vocab: int,
    hidden: int,
    layers: int = 2,
    embedding: int | None = None,
    tied: bool = False,
    fused: bool = True,
) -> None:
    """One sample is a stretch of ``work.tokens`` words, unrolled by truncated back-propagation."""
    width = embedding or hidden
    rows = b.batch_size * work.tokens
    b.input(2 * work.tokens)
    b.embedding(rows, width, vocab)
    b.dropout(rows * width)
    for layer in range(layers):
        b.rnn(work.tokens, width if layer == 0 else hidden, hidden, fused=fused)
        b.dropout(rows * hidden)
    b.linear(rows, hidden, vocab, shared=tied)
    if tied:
        b.parameters(vocab)
    b.cross_entropy(rows, vocab)
