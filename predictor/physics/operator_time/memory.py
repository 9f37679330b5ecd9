"""Memory-bound work: bytes over the bandwidth a kind of kernel reaches, faster out of L2."""

from __future__ import annotations

import numpy as np

from .laws import Constant, Law
from .work import Floats, Work

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
