"""A distribution of run times, drawn from weighted runs of which some are lower bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Where every run was cut off and no limit is known: how far beyond the longest, in ln.
BEYOND = float(np.log(2.0))
# Of two equal times the run that ended comes first.
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Times (n,) in ln seconds, ascending, and the share of jobs (n,) that run at most as long."""

    ln_s: Floats
    cumulative: Floats

    @classmethod
    def of(
        cls, ln_s: Floats, weight: Floats, bounds: NDArray[np.bool_], ln_cap: float | None
    ) -> RunTimes:
        """From runs with weights, of which ``bounds`` are lower bounds, none beyond the cap.

        The weight of a lower bound goes to the longer runs (Efron, Berkeley Symposium 1967; the
        estimate of Kaplan and Meier), and where there are none to the cap.
        """
        order = np.argsort(ln_s + _TIE * bounds)
        ln_s, weight, bounds = ln_s[order], weight[order], bounds[order]
        left = np.cumsum(weight[::-1])[::-1]
        survival = np.cumprod(
            1.0 - np.where(bounds, 0.0, weight / np.maximum(left, _TIE)).clip(0.0, 1.0)
        )
        last = ln_s[-1] + BEYOND if ln_cap is None else ln_cap
        values = np.append(ln_s if ln_cap is None else np.minimum(ln_s, ln_cap), last)
        return cls(values, np.append(1.0 - survival, 1.0))

    def quantile_s(self, level: float) -> float:
        """Seconds that a share ``level`` of such jobs run at most."""
        at = int(np.searchsorted(self.cumulative, level - _TIE))
        return exp(float(self.ln_s[min(at, len(self.ln_s) - 1)]))

    def mean_s(self) -> float:
        """The expected run time."""
        return float(np.exp(self.ln_s) @ np.diff(self.cumulative, prepend=0.0))

    def share_below(self, ln_s: float) -> float:
        """The share of jobs that run less long: the highest level whose quantile is too short."""
        at = int(np.searchsorted(self.ln_s, ln_s - _TIE))
        return float(self.cumulative[at - 1]) if at else 0.0
