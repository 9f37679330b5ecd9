"""The latest runs of one key, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from .past_runs import PastRun

Floats = NDArray[np.float64]
WINDOW = 32
# Of jobs submitted together, and of one user among many, the latest; the rest says the same again.
PER_BATCH, PER_USER = 8, 4
HALF_LIFE_RUNS = 20.0
# m runs submitted together weigh m**0.6: they share their luck.
BATCH_POWER = 0.6


@dataclass(frozen=True, slots=True)
class RunArrays:
    """Runs as arrays (n,): ln seconds, ln of the limit (NaN unknown), how it ended and weight."""

    ln_run: Floats
    ln_limit: Floats
    ended: NDArray[np.int64]
    weight: Floats


@dataclass(slots=True)
class RunWindow:
    """The latest runs of one key, oldest first; ``shared`` where they are of several users."""

    shared: bool
    runs: list[PastRun] = field(default_factory=list)
    seen: int = 0
    _arrays: RunArrays | None = None

    def add(self, run: PastRun) -> None:
        """Take the newest run in, and let go of the one that says least."""
        runs, self._arrays, self.seen = self.runs, None, self.seen + 1
        batch, user = run.batch, run.request.user
        if self.shared and user:
            alike, most = [o for o in runs if o.request.user == user], PER_USER
        else:
            alike, most = [o for o in runs if o.batch == batch], PER_BATCH
        if len(alike) >= most:
            runs.remove(alike[0])
        runs.append(run)
        if len(runs) > WINDOW:
            del runs[0]

    def drop(self, which: Set[int]) -> None:
        """Let go of runs by their identity."""
        self.runs, self._arrays = [run for run in self.runs if id(run) not in which], None

    @property
    def arrays(self) -> RunArrays:
        """The runs as arrays, made once for all who ask before the next run ends."""
        if self._arrays is None:
            self._arrays = self._made()
        return self._arrays

    def _made(self) -> RunArrays:
        runs = self.runs
        batches = [run.batch for run in runs]
        size = Counter(batches)
        shared = np.array([float(size[batch]) for batch in batches]) ** (BATCH_POWER - 1)
        age = np.arange(len(runs))[::-1]
        limits = (run.request.limit_s for run in runs)
        return RunArrays(
            ln_run=np.array([log(run.run_s) for run in runs]),
            ln_limit=np.array([log(s) if s else np.nan for s in limits]),
            ended=np.array([int(run.ended) for run in runs]),
            weight=shared * 0.5 ** (age / HALF_LIFE_RUNS),
        )
