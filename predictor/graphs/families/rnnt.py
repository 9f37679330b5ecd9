"""RNN transducer of MLPerf: LSTM encoder and predictor, a joint network over all their pairs.

Graves arXiv 1211.3711; sizes of the MLPerf v1.0 reference.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family


@family("rnnt")
def rnnt(
    b: GraphBuilder,
    work: Workload,
    *,
    vocab: int = 1023,
    mels: int = 80,
    frame_stack: int = 3,
    pre_layers: int = 2,
    post_layers: int = 3,
    hidden: int = 1024,
    predictor_layers: int = 2,
    predictor_hidden: int = 512,
    joint_hidden: int = 512,
    symbols_per_frame: float = 0.05,
) -> None:
    """One sample is an utterance of ``work.tokens`` frames of 10 ms; ``vocab`` lacks the blank."""
    frames = work.tokens // frame_stack
    symbols = round(work.tokens * symbols_per_frame) + 1
    b.input(work.tokens * mels + symbols)
    half = -(-frames // 2)
    _lstm(b, frames, mels * frame_stack, hidden, pre_layers)
    b.elementwise(b.batch_size * frames * hidden, backward_reads=1)  # stack two steps
    _lstm(b, half, 2 * hidden, hidden, post_layers)
    b.embedding(b.batch_size * symbols, predictor_hidden, vocab)
    _lstm(b, symbols, predictor_hidden, predictor_hidden, predictor_layers)
    b.linear(b.batch_size * half, hidden, joint_hidden)
    b.linear(b.batch_size * symbols, predictor_hidden, joint_hidden)
    _joint(b, half, symbols, joint_hidden, vocab + 1)


def _lstm(b: GraphBuilder, steps: int, width: int, hidden: int, layers: int) -> None:
    for layer in range(layers):
        b.rnn(steps, width if layer == 0 else hidden, hidden)
        b.dropout(b.batch_size * steps * hidden)


def _joint(b: GraphBuilder, frames: int, symbols: int, hidden: int, classes: int) -> None:
    """Sum of every pair, ReLU and dropout in one kernel, classifier, transducer loss.

    The loss keeps only log-sum-exp and recomputes the softmax in its backward.
    """
    pairs = b.batch_size * frames * symbols
    b.elementwise(
        pairs * hidden,
        reads=0.1,
        writes=1.25,
        backward_reads=2,
        backward_writes=0.1,
        backward_kernels=2,
    )
    b.linear(pairs, hidden, classes)
    b.emit(
        Kind.LOSS,
        Direction.FORWARD,
        (pairs, classes),
        reads=pairs * classes,
        writes=5 * pairs,
        kernels=3,
    )
    b.emit(
        Kind.LOSS,
        Direction.DATA_GRADIENT,
        (pairs, classes),
        reads=pairs * (classes + 5),
        writes=pairs * classes,
    )
