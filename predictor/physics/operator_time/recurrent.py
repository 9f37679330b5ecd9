"""Recurrent layers: time steps one after the other, each a latency and a thin GEMM."""

from __future__ import annotations

import numpy as np

from ...graphs.operator import Direction
from .laws import Constant, Law, power_mean
from .work import DIRECTION_CODE, Floats, Work


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
