"""Fused (flash) attention: one block of queries per SM, looping over the keys."""

from __future__ import annotations

import numpy as np

from ...graphs.operator import Direction
from .laws import Constant, Law, power_mean, sigmoid
from .work import DIRECTION_CODE, Floats, Work

BLOCK = 128.0  # queries of one block (Dao, arXiv 2307.08691)
FORWARD_PRODUCTS = 4.0  # FLOPs per query, key and head element: two products, multiply and add


def attention_seconds(p: Floats, work: Work) -> Floats:
    """Seconds of fused attention; ``p`` is (n or 1, 7).

    ``Operator.flops`` carries what a causal mask skips and the recomputation of the backward.
    """
    queries, keys, width, heads = (work.dims[:, i] for i in range(4))
    c = np.exp(p)
    backward = work.direction != DIRECTION_CODE[Direction.FORWARD]
    rate = work.rate * c[:, 0] * np.where(backward, c[:, 6], 1.0) / work.sms
    dense = FORWARD_PRODUCTS * queries * keys * width * heads
    share = work.flops / np.maximum(dense, 1.0)
    blocks = np.ceil(queries / BLOCK) * heads / work.sms
    quantised = sigmoid(p[:, 4])
    waves = quantised * np.ceil(blocks) + (1.0 - quantised) * np.maximum(blocks, 1.0)
    per_key = FORWARD_PRODUCTS * BLOCK * (width + c[:, 5]) / rate
    compute = waves * (keys * share + c[:, 1]) * per_key
    memory = work.bytes / (work.bandwidth * c[:, 2])
    return np.asarray(c[:, 3] * 1e-6 + power_mean(compute, memory))


ATTENTION = Law(
    "attention",
    (
        Constant("efficiency", -0.4, 0.5),
        Constant("key_latency", 4.0, 0.8),
        Constant("memory_efficiency", -0.3, 0.2),
        Constant("latency_us", 1.5, 0.2),
        Constant("wave_quantisation", 0.0, 1.0),
        Constant("width_overhead", 2.5, 0.8),
        Constant("backward_efficiency", -0.2, 0.3),
    ),
    attention_seconds,
)
