"""What a time law is: constants with a prior, and the seconds they give for operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...graphs.operator import Direction
from .work import DIRECTION_CODE, Floats, Work

Formula = Callable[[Floats, Work], Floats]


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant of a law, in the log or logit domain: name, prior mean and deviation."""

    name: str
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Law:
    """``formula(constants (n or 1, p), work of n) -> seconds (n,)``, never falling with work."""

    name: str
    constants: tuple[Constant, ...]
    formula: Formula

    @property
    def prior(self) -> Floats:
        """Prior means, (p,)."""
        return np.array([c.mean for c in self.constants])

    @property
    def deviation(self) -> Floats:
        """Prior standard deviations, (p,)."""
        return np.array([c.deviation for c in self.constants])


def sigmoid(x: Floats) -> Floats:
    """Logistic function."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def power_mean(a: Floats, b: Floats) -> Floats:
    """Smooth maximum (3-norm) of two overlapping times."""
    return np.cbrt(a * a * a + b * b * b)


MEMORY = Law(
    "memory",
    (
        Constant("efficiency", -0.3, 0.4),
        Constant("l2_gain", 0.3, 0.3),
        Constant("latency_us", 0.9, 0.12),
    ),
    lambda p, work: memory_seconds(p, work),
)


def memory_seconds(p: Floats, work: Work) -> Floats:
    """Seconds of operators bound by traffic; ``p`` is (n or 1, 3).

    The first bytes, up to the size of L2, move faster by ``l2_gain``: what one kernel wrote the
    next one still finds there. Each device launch of an operator pays the latency once.
    """
    efficiency, gain, latency = np.exp(p[:, 0]), np.exp(np.abs(p[:, 1])), np.exp(p[:, 2])
    cached = np.minimum(work.bytes, work.l2)
    seconds = (work.bytes - cached + cached / gain) / (work.bandwidth * efficiency)
    return np.asarray(seconds + latency * 1e-6 * np.maximum(work.kernels, 1.0))


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


def recurrent_seconds(p: Floats, work: Work) -> Floats:
    """Seconds of the recurrent part of one layer; ``p`` is (n or 1, 6).

    A step multiplies (batch + b0) rows with the hidden x (gates x hidden) weights, which it reads
    again from L2 (what fits) or memory; the gates wait for it, so nothing overlaps across steps.
    """
    steps, batch, hidden, gates = (work.dims[:, i] for i in range(4))
    c = np.exp(p)
    backward = work.direction != DIRECTION_CODE[Direction.FORWARD]
    weights = gates * hidden * hidden
    compute = 2.0 * (batch + c[:, 1]) * weights / (work.rate * c[:, 0])
    reading = weights * work.element_bytes / (work.bandwidth * c[:, 2])
    gate_traffic = (gates + 2.0) * batch * hidden * work.element_bytes / (work.bandwidth * c[:, 5])
    step = c[:, 3] * 1e-6 + power_mean(compute, reading) + gate_traffic
    return np.asarray(steps * step * np.where(backward, c[:, 4], 1.0))


RECURRENT = Law(
    "rnn",
    (
        Constant("efficiency", -0.7, 0.5),
        Constant("batch_saturation", 3.0, 0.8),
        Constant("weight_bandwidth", 0.7, 0.5),
        Constant("step_latency_us", 2.3, 0.5),
        Constant("backward_cost", 0.1, 0.3),
        Constant("gate_bandwidth", 0.0, 0.7),
    ),
    recurrent_seconds,
)
