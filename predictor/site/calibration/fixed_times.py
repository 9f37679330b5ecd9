"""What a run of a site takes besides its steps: start-up, and pauses for checkpoints and tests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..history.run import Run

MIN_RUNS = 10
HIGH = 0.9
MAX_SAMPLES = 5_000  # of one cluster
# Runs with fewer seconds of steps tell nothing of the share of their pauses.
MIN_STEPS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTime:
    """Median and 90 % quantile of what ``runs`` runs reported, seconds or a ratio."""

    median: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> FixedTime | None:
        """None where there are fewer than MIN_RUNS values."""
        if len(values) < MIN_RUNS:
            return None
        return cls(
            median=float(np.median(values)), high=float(np.quantile(values, HIGH)), runs=len(values)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTimes:
    """Those of one cluster.

    ``startup_s`` is from the start of a job to its first step. ``pause_share`` is the time
    between steps, as a ratio of the time of the steps. None where too few runs said.
    """

    cluster: str
    startup_s: FixedTime | None = None
    pause_share: FixedTime | None = None


def fixed_times(runs: Iterable[Run]) -> tuple[FixedTimes, ...]:
    """Of every cluster with enough runs.

    ``runs`` come oldest first; the latest MAX_SAMPLES of each are looked at.
    """
    told: defaultdict[str, deque[Run]] = defaultdict(lambda: deque(maxlen=MAX_SAMPLES))
    for run in runs:
        if run.reported is not None:
            told[run.ended.cluster].append(run)
    found = (
        FixedTimes(
            cluster=cluster,
            startup_s=FixedTime.of(_voices(rows, _startup_s)),
            pause_share=FixedTime.of(_voices(rows, _pause_share)),
        )
        for cluster, rows in told.items()
    )
    return tuple(f for f in found if f.startup_s is not None or f.pause_share is not None)


def of_cluster(found: Iterable[FixedTimes], cluster: str) -> FixedTimes | None:
    """Those of a cluster; None where there are none."""
    return next((one for one in found if one.cluster == cluster), None)


def _voices(runs: Collection[Run], tell: Callable[[Run], float | None]) -> list[float]:
    """What runs say; of one user's runs of one model no more than a tenth of all."""
    by_voice: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        said = tell(run)
        if said is not None:
            by_voice[run.ended.user, run.model or ""].append(said)
    most = max(MIN_RUNS, len(runs) // 10)
    return [said for voice in by_voice.values() for said in voice[-most:]]


def _startup_s(run: Run) -> float | None:
    return None if run.reported is None else run.reported.startup_s


def _pause_share(run: Run) -> float | None:
    said = run.reported
    if said is None or said.paused_s is None or said.step_s * said.steps < MIN_STEPS_S:
        return None
    return said.paused_s / (said.step_s * said.steps)
