"""Predicted steps beside measured ones, and what is left between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median

from ..timing import Timing

# Half the steps lie within this share of the median on a machine that does nothing else.
STEADY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One network in one precision: seconds of a step from tables alone, and as it was measured.

    ``calibrated_s`` is the prediction times one factor that the OTHER networks show in the same
    precision. ``measured`` is at the usual pace of the tables, ``pace`` what the device ran at over
    that: 0.9 is a tenth slower. ``aside`` marks networks that were no guide to the predictor.
    """

    network: str
    precision: str
    predicted_s: float
    calibrated_s: float
    measured: Timing
    pace: float
    aside: bool

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured.time_s - 1.0

    @property
    def clock_error(self) -> float:
        """As ``error``, against the time that the clock showed, whatever the pace was."""
        return self.predicted_s * self.pace / self.measured.time_s - 1.0

    @property
    def calibrated_error(self) -> float:
        """As ``error``, with the factor of the others."""
        return self.calibrated_s / self.measured.time_s - 1.0


# Against steps at the pace of the tables; with one factor; against the clock.
ERROR = attrgetter("error")
CALIBRATED = attrgetter("calibrated_error")
BY_THE_CLOCK = attrgetter("clock_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean and median of absolute errors over ``steps`` comparisons."""

    steps: int
    mean: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Every comparison on one device."""

    device: str
    comparisons: tuple[Comparison, ...]

    def summary(
        self, error: Callable[[Comparison], float] = ERROR, *, aside: bool | None = None
    ) -> Summary | None:
        """Errors of all networks, or of those that were a guide or not; None where none is."""
        errors = [abs(error(c)) for c in self.comparisons if aside is None or c.aside is aside]
        if not errors:
            return None
        return Summary(steps=len(errors), mean=fmean(errors), median=median(errors))

    @property
    def unsteady(self) -> tuple[Comparison, ...]:
        """Those whose measured steps disagree."""
        return tuple(c for c in self.comparisons if c.measured.spread > STEADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A predicted step, and the measured one."""

    network: str
    precision: str
    predicted_s: float
    measured: Timing
    pace: float
    aside: bool


def compared(pairs: Sequence[Pair]) -> tuple[Comparison, ...]:
    """Each pair with the factor of the other networks, leaving its own out."""
    return tuple(
        Comparison(
            network=p.network,
            precision=p.precision,
            predicted_s=p.predicted_s,
            calibrated_s=p.predicted_s * _factor(pairs, p),
            measured=p.measured,
            pace=p.pace,
            aside=p.aside,
        )
        for p in pairs
    )


def _factor(pairs: Sequence[Pair], left_out: Pair) -> float:
    """The median of measured over predicted of the others; networks set aside teach nothing."""
    logs = [
        math.log(p.measured.time_s / p.predicted_s)
        for p in pairs
        if p.precision == left_out.precision and p.network != left_out.network and not p.aside
    ]
    return math.exp(median(logs)) if logs else 1.0
