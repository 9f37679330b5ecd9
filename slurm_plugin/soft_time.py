"""Soft time: backfill plans a job by its estimate (TimeMin), and no limit of anybody gets shorter.

What backfill starts runs with TimeMin as its limit, which ``slurm watch`` lets grow up to the limit
that the job would have had. TimeMin is chosen so that the partition's OverTimeLimit alone reaches
that far: with nobody watching, no job ends before the limit it would have had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from predictor.identify.directives import sbatch_options
from predictor.site.similar.estimate import Estimate

from .cluster import Cluster
from .config import SlurmLimits
from .limit import minutes
from .protocol import HookRequest

# A time above this share of the whole limit changes nothing worth a word.
WORTHWHILE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class SoftTime:
    """What backfill plans with and what the job may run, both in minutes; inf for no end."""

    time_min: int
    whole_min: float


def soft_time(
    policy: SlurmLimits,
    request: HookRequest,
    estimate: Estimate,
    limit_min: int | None,
    partitions: Sequence[str],
    cluster: Cluster | None,
) -> SoftTime | None:
    """That of a job whose limit we set to ``limit_min``, None to leave it; None where it has none.

    None too where nothing is known of such jobs, OverTimeLimit does not reach, the user gave a
    TimeMin, or the script asks for a signal, which Slurm would send before the shorter limit.
    """
    known = estimate.physics or any(one.share > 0 for one in estimate.similar)
    signalled = "signal" in sbatch_options(request.script or "")
    if cluster is None or request.time_min is not None or signalled or not known:
        return None
    parts = [part for part in cluster.partitions if part.name in partitions]
    over_min = min((cluster.over_min(part) for part in parts), default=0.0)
    defaults = [float(p.default_min or p.max_min or math.inf) for p in parts]
    whole_min = limit_min or request.time_limit or max(defaults, default=math.inf)
    if not over_min or (whole_min == math.inf and over_min < math.inf):
        return None
    level = policy.time_min_quantile or policy.quantile
    step = policy.rounding_min
    expected_min = math.ceil(minutes(estimate.quantile_s(level)) / step) * step
    reached_min = 0 if over_min == math.inf else math.ceil(whole_min - over_min)
    time_min = max(expected_min, reached_min, policy.floor_min)
    return SoftTime(time_min, whole_min) if time_min <= WORTHWHILE_SHARE * whole_min else None
