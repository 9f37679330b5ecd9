"""Times: medians, quiet samples, second tries, and a device that is never waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import ReferenceType, ref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predictor.measure.profiler.case import Run
from predictor.measure.profiler.timing import (
    ATTEMPTS,
    FEWEST,
    CpuTimer,
    CudaTimer,
    Round,
    Sample,
    timed,
    timing_of,
)


class Script:
    """A timer that says what it was told to."""

    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples = samples
        self.asked = 0

    def sample(self, run: Run, calls: int) -> Sample:
        self.asked += 1
        return next(self._samples)


def nothing() -> None:
    """A call that takes no time."""


@given(st.lists(st.floats(1e-6, 10.0), min_size=2), st.floats(0.001, 1000.0))
def test_a_slower_clock_scales_the_time_and_leaves_the_spread(
    seconds: list[float], factor: float
) -> None:
    a, b = timing_of(seconds), timing_of([factor * s for s in seconds])
    assert b.time_s == pytest.approx(factor * a.time_s)
    assert b.spread == pytest.approx(a.spread, abs=1e-9)


def test_one_wild_sample_does_not_move_the_median() -> None:
    wild = Script(Sample(9.0 if i == 2 else 1.0, False) for i in range(100))
    timing = timed(wild, [nothing], 0.0)
    assert (timing.time_s, timing.reliable) == (1.0, True)


def test_disturbed_samples_do_not_count_where_there_are_others() -> None:
    shared = Script(Sample(5.0 if i % 2 else 0.01, bool(i % 2)) for i in range(1000))
    timing = timed(shared, [nothing], 0.15)
    assert (timing.time_s, timing.spread) == (0.01, 0.0)


def test_a_machine_that_is_never_quiet_still_gives_a_time() -> None:
    timing = timed(Script(Sample(2.0, True) for _ in range(100)), [nothing], 0.0)
    assert (timing.time_s, timing.samples) == (2.0, FEWEST)


def test_samples_that_disagree_are_taken_again() -> None:
    first = [Sample(1.0 + i, False) for i in range(FEWEST + 1)]
    second = [Sample(3.0, False)] * (FEWEST + 1)
    assert timed(Script(iter(first + second)), [nothing], 0.0).time_s == 3.0


def test_after_some_attempts_the_best_one_is_marked() -> None:
    uneven = Script(Sample(1.0 + i % 3, False) for i in range(1000))
    assert not timed(uneven, [nothing], 0.0).reliable
    assert uneven.asked == ATTEMPTS * (FEWEST + 1)


def test_more_work_takes_more_time_on_the_cpu() -> None:
    small, large = (torch.randn(n, n) for n in (16, 512))
    few = timed(CpuTimer(1), [lambda: small @ small], 0.01)
    many = timed(CpuTimer(1), [lambda: large @ large], 0.01)
    assert many.time_s > few.time_s > 0


@dataclass
class Cuda:
    """The functions of torch.cuda that are used, on a device whose clock is told."""

    host_s: float = 0.0
    device_s: float = 0.0
    launch_s: float = 1e-5
    kernel_s: float = 2e-6
    waits: list[float] = field(default_factory=list)

    def synchronize(self) -> None:
        self.host_s = self.device_s = max(self.host_s, self.device_s)

    def _sleep(self, cycles: int) -> None:
        self.waits.append(cycles / CudaTimer.CYCLES_PER_S)
        self._queue(self.waits[-1])

    def launch(self) -> None:
        self.host_s += self.launch_s
        self._queue(self.kernel_s)

    def _queue(self, seconds: float) -> None:
        self.device_s = max(self.device_s, self.host_s) + seconds

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802
        assert enable_timing
        return Event(self)


@dataclass
class Event:
    """A moment of the device."""

    cuda: Cuda
    at_s: float = 0.0

    def record(self) -> None:
        self.at_s = max(self.cuda.device_s, self.cuda.host_s)

    def query(self) -> bool:
        return self.at_s <= self.cuda.host_s

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at_s - self.at_s)


def test_launches_of_a_slow_host_are_not_in_the_time_of_the_device() -> None:
    cuda = Cuda()
    assert CudaTimer(cuda).sample(cuda.launch, 20).seconds == pytest.approx(cuda.kernel_s)


def test_a_host_that_was_late_queues_behind_a_longer_wait_from_then_on() -> None:
    cuda = Cuda(launch_s=1e-3)
    timer = CudaTimer(cuda)
    found = timer.sample(cuda.launch, 20)
    assert not found.disturbed
    assert found.seconds == pytest.approx(cuda.kernel_s)
    tries = len(cuda.waits)
    assert tries > 1
    timer.sample(cuda.launch, 20)
    assert len(cuda.waits) == tries + 1


def test_a_host_that_is_always_late_says_so() -> None:
    cuda = Cuda(launch_s=10.0)
    assert CudaTimer(cuda).sample(cuda.launch, 2).disturbed


def test_copies_are_gone_through_in_turn_from_sample_to_sample() -> None:
    seen = list[int]()
    both = Round([lambda: seen.append(0), lambda: seen.append(1)])
    timer = CudaTimer(Cuda())
    for calls in (1, 1, 1, 4):
        timer.sample(both, calls)
    assert seen == [0, 1, 0, 1, 0, 1, 0]


def test_results_are_kept_until_the_turn_of_their_copy_comes_again() -> None:
    class Result:
        pass

    made: list[ReferenceType[Result]] = []

    def call() -> Result:
        result = Result()
        made.append(ref(result))
        return result

    three = Round([call] * 3)
    for _ in range(5):
        three()
    assert [found() is not None for found in made] == [False, False, True, True, True]


def test_torch_has_the_functions_of_the_timer() -> None:
    for name in ("Event", "_sleep", "synchronize"):
        assert hasattr(torch.cuda, name)
