"""Seconds of one call: warm-up, many samples, the median, and how far the samples agree.

The clock of a CPU, and what others on the machine leave of its caches, move by tens of per cent
within minutes. A GPU states its clocks (``nvml``); a virtual CPU states nothing, so its pace is
told by three small kernels: a product, a sum of long tensors, and calls that compute next to
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from resource import RUSAGE_SELF, getrusage
from statistics import fmean, median, quantiles
from time import perf_counter_ns, process_time_ns
from typing import Any, Protocol

import torch

from .case import Run

# Distance of the quartiles over the median: more means that the clock fell or others ran here.
ABSURD_SPREAD = 0.3
DISAGREE = "samples disagree"
ATTEMPTS = 3
FEWEST, MOST = 5, 100  # samples
SHORTEST_S = 50e-6  # a sample shorter than this says more of the clock than of the call
WARM_UP = 2  # calls beside one of each copy
NS = 1e-9
SIDE, LONG, SHORT, CALLS = 256, 1 << 20, 64, 100  # about a millisecond in all
NOW, FIRST = 3, 300  # samples of a moment, and of what moments are compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The median of some samples, and the distance of their quartiles over it."""

    time_s: float
    spread: float
    samples: int

    @property
    def reliable(self) -> bool:
        """Whether the samples agree."""
        return self.spread <= ABSURD_SPREAD


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one call, and whether something is known to have come in between."""

    seconds: float
    disturbed: bool


class Timer(Protocol):
    """Times calls on one device."""

    def sample(self, run: Run, calls: int) -> Sample:
        """The average of ``calls`` calls."""


class Round:
    """The same call on one copy of its tensors after the other, from sample to sample.

    A result is kept until the turn of its copy comes again, as a training step keeps activations:
    memory that was given back a moment ago would still be in the cache.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs, self._turn = runs, 0
        self._kept: list[object] = [None] * len(runs)

    def __call__(self) -> None:
        """The next call."""
        turn = self._turn
        self._kept[turn] = self._runs[turn]()
        self._turn = (turn + 1) % len(self._runs)


def timed(timer: Timer, runs: Sequence[Run], budget_s: float) -> Timing:
    """Time the same call on each of its copies in ``runs``; again where samples disagree.

    Disturbed samples count only where the others are too few. Of several attempts the one counts
    whose samples agree best.
    """
    run = Round(runs)
    for _ in range(len(runs) + WARM_UP):
        run()
    attempts: list[Timing] = []
    while len(attempts) < ATTEMPTS and not (attempts and attempts[-1].reliable):
        once = timer.sample(run, 1).seconds
        # As few calls in a sample as the clock allows.
        calls = max(1, round(min(SHORTEST_S, budget_s / FEWEST) / max(once, NS)))
        wanted = min(max(int(budget_s / max(once * calls, NS)), FEWEST), MOST)
        every = [timer.sample(run, calls) for _ in range(wanted)]
        clean = [sample for sample in every if not sample.disturbed]
        attempts.append(timing_of([s.seconds for s in (clean if len(clean) >= FEWEST else every)]))
    return min(attempts, key=lambda timing: timing.spread)


def timing_of(samples: Sequence[float]) -> Timing:
    """Median and spread of samples in seconds."""
    low, middle, high = quantiles(samples, n=4)
    return Timing(time_s=median(samples), spread=(high - low) / middle, samples=len(samples))


def cpu_clock(threads: int) -> Callable[[], int]:
    """Nanoseconds of work on a CPU.

    Of one thread the processor time, which others cannot take away; of several the time passed.
    """
    return process_time_ns if threads == 1 else perf_counter_ns


class CpuTimer:
    """Time of calls, with the dispatcher and the Python call that every training step pays.

    With several threads a sample is disturbed where the system gave a core to another process.
    """

    def __init__(self, threads: int) -> None:
        self._clock = cpu_clock(threads)
        self._alone = threads == 1

    def sample(self, run: Run, calls: int) -> Sample:
        """See Timer."""
        clock = self._clock
        before, start = _preemptions(), clock()
        for _ in range(calls):
            run()
        seconds = (clock() - start) * NS / calls
        return Sample(seconds, not self._alone and _preemptions() > before)


def _preemptions() -> int:
    return getrusage(RUSAGE_SELF).ru_nivcsw


class CudaTimer:
    """Device time between two events, with the calls queued before the first is reached.

    The device waits in a kernel of its own while the host queues the calls, so that no launch
    lies between them. Where the host was late the sample is taken again behind a longer wait; it
    is disturbed where the host is late every time. ``cuda`` is the module ``torch.cuda``.
    """

    CYCLES_PER_S = 2e9  # about the clock of today's GPUs; a guess to start from
    ATTEMPTS = 8

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._wait_s = 1e-3

    def sample(self, run: Run, calls: int) -> Sample:
        """See Timer."""
        wait_s = self._wait_s
        for _ in range(self.ATTEMPTS):
            found = self._queued(run, calls, wait_s)
            if not found.disturbed:
                self._wait_s = wait_s
                break
            wait_s *= 2
        return found

    def _queued(self, run: Run, calls: int, wait_s: float) -> Sample:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._cuda.synchronize()
        self._cuda._sleep(int(wait_s * self.CYCLES_PER_S))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        late = bool(start.query())
        self._cuda.synchronize()
        return Sample(start.elapsed_time(end) * 1e-3 / calls, late)


class Pace:
    """The speed of a CPU relative to what ``first`` was measured at: 0.9 is a tenth slower.

    ``first`` are seconds by kernel.
    """

    def __init__(self, clock: Callable[[], int], first: Mapping[str, float] | None = None) -> None:
        self._clock = clock
        matrix = torch.rand(SIDE, SIDE)
        long, out, short = torch.rand(LONG), torch.zeros(LONG), torch.rand(SHORT)

        def calls() -> None:
            for _ in range(CALLS):
                torch.add(short, 1.0)

        self._runs: Mapping[str, Run] = {
            "product_s": lambda: torch.mm(matrix, matrix),
            "sum_s": lambda: torch.add(long, 1.0, out=out),
            "calls_s": calls,
        }
        self.first = first or self._sampled(FIRST)
        self._last = self.now()

    def relative_to(self, pace: float) -> Pace:
        """The same, relative to what this one calls ``pace``."""
        return Pace(self._clock, {name: seconds / pace for name, seconds in self.first.items()})

    def now(self) -> float:
        """The pace of this moment."""
        return paced(self._sampled(NOW), self.first)

    def since(self) -> float:
        """The pace of this moment and of the moment it was last asked for, their mean."""
        before, self._last = self._last, self.now()
        return (before + self._last) / 2

    def _sampled(self, times: int) -> dict[str, float]:
        samples: dict[str, list[float]] = {name: [] for name in self._runs}
        for _ in range(times):
            for name, run in self._runs.items():
                start = self._clock()
                run()
                samples[name].append((self._clock() - start) * NS)
        return {name: median(seconds) for name, seconds in samples.items()}


def paced(found: Mapping[str, float], first: Mapping[str, float]) -> float:
    """Geometric mean of how much faster the kernels of ``found`` are than those of ``first``."""
    return exp(fmean(log(seconds / found[name]) for name, seconds in first.items()))
