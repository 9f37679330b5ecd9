"""How fast a CPU runs at this moment, told by three small kernels.

The clock of a CPU, and what others on the machine leave of its caches, move by tens of per cent
within minutes. A GPU states its clocks (``nvml``); a virtual CPU states nothing, so it is asked to
work: a product, a sum of long tensors, and calls that compute next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import fmean, median

import torch

from .timing import NS

SIDE, LONG, SHORT, CALLS = 256, 1 << 20, 64, 100  # about a millisecond in all
NOW, FIRST = 3, 300  # samples of a moment, and of what moments are compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Seconds of each kernel."""

    product_s: float
    sum_s: float
    calls_s: float

    @property
    def seconds(self) -> tuple[float, float, float]:
        """All three."""
        return self.product_s, self.sum_s, self.calls_s


class Pace:
    """The speed of a CPU relative to what ``first`` was measured at: 0.9 is a tenth slower."""

    def __init__(self, clock: Callable[[], int], first: Mapping[str, float] | None = None) -> None:
        self._clock = clock
        self._runs = _kernels()
        self.first = Kernels(**first) if first is not None else self._sampled(FIRST)
        self._last = self.now()

    def relative_to(self, pace: float) -> Pace:
        """The same, relative to what this one calls ``pace``."""
        first = {name: seconds / pace for name, seconds in asdict(self.first).items()}
        return Pace(self._clock, first)

    def now(self) -> float:
        """The pace of this moment."""
        return paced(self._sampled(NOW), self.first)

    def since(self) -> float:
        """The pace of this moment and of the moment it was last asked for, their mean."""
        before, self._last = self._last, self.now()
        return (before + self._last) / 2

    def _sampled(self, times: int) -> Kernels:
        return _medians([[self._seconds(run) for run in self._runs] for _ in range(times)])

    def _seconds(self, run: Callable[[], object]) -> float:
        start = self._clock()
        run()
        return (self._clock() - start) * NS


def paced(found: Kernels, first: Kernels) -> float:
    """Geometric mean of how much faster the kernels of ``found`` are than those of ``first``."""
    pairs = zip(first.seconds, found.seconds, strict=True)
    return exp(fmean(log(then / now) for then, now in pairs))


def _medians(samples: Sequence[Sequence[float]]) -> Kernels:
    product_s, sum_s, calls_s = (median(column) for column in zip(*samples, strict=True))
    return Kernels(product_s=product_s, sum_s=sum_s, calls_s=calls_s)


def _kernels() -> tuple[Callable[[], object], ...]:
    matrix = torch.rand(SIDE, SIDE)
    long, out, short = torch.rand(LONG), torch.zeros(LONG), torch.rand(SHORT)

    def calls() -> None:
        for _ in range(CALLS):
            torch.add(short, 1.0)

    return (lambda: torch.mm(matrix, matrix), lambda: torch.add(long, 1.0, out=out), calls)
