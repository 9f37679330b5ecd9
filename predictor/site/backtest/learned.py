"""What the site's memory says of every job of a workload, at its submission and no later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import TraceError
from ..replay import Floats
from ..similar.estimate import Estimate, estimate_job
from ..similar.memory import SiteMemory
from .workload import Workload


@dataclass(frozen=True, slots=True)
class LearnedTimes:
    """Times (n,) in seconds by quantile: what the queue is ordered by, and run times."""

    order_s: Mapping[float, Floats]
    quantile_s: Mapping[float, Floats]
    known_share: float


def learned_times(work: Workload, levels: Sequence[float]) -> LearnedTimes:
    """Go through the log as time did: each job is estimated from the runs that had ended.

    Times are those of the log, so that every policy gets the same estimates. Raises TraceError
    where the workload holds no requests.
    """
    runs = work.past
    if len(runs) != len(work):
        raise TraceError(
            "no job says who asked for what; expected jobs of a history or an SWF file"
        )
    order_s, quantile_s = ({level: np.empty(len(runs)) for level in levels} for _ in range(2))
    memory, known = SiteMemory(), 0
    told: dict[int, Estimate] = {}
    moments = [(run.submit_s, 1, at) for at, run in enumerate(runs)]
    moments += [(run.end_s, 0, at) for at, run in enumerate(runs)]
    for _, submitted, at in sorted(moments):
        if not submitted:
            memory.add(runs[at], told.pop(at).times)
            continue
        found = told[at] = estimate_job(runs[at].request, memory)
        known += bool(found.similar)
        for level in levels:
            order_s[level][at] = found.order_s(level)
            quantile_s[level][at] = found.quantile_s(level)
    return LearnedTimes(order_s, quantile_s, known / len(runs))
