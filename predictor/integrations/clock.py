"""How long optimizer steps take, without making the training wait for its GPU.

A GPU runs behind the host, so the host's time between two steps is that of the launches until the
queue is full, and reading the device's state with a synchronisation would drain the queue. On
CUDA an event is put into the stream at the end of each step, and looked at some steps later, when
the device has passed it: the time between two events is the device's own, waits for input
included. Elsewhere the host's clock does.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import deque
from typing import Any

SKIPPED = 5  # allocation, autotuning and compilation fall into the first steps
WINDOW = 100


class HostTime:
    """Where the times of steps come from: the host's monotonic clock."""

    def now(self) -> Any:
        """A mark at the end of what was launched so far."""
        return time.perf_counter()

    def ready(self, mark: Any) -> bool:
        """Whether that end was reached; never waits."""
        return True

    def between(self, first: Any, last: Any) -> float:
        """Seconds between two marks that were reached."""
        return float(last - first)


class CudaTime(HostTime):
    """Events in the current CUDA stream of this process."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def now(self) -> Any:
        """An event that was just put into the stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ready(self, mark: Any) -> bool:
        """Whether the device has passed the event."""
        return bool(mark.query())

    def between(self, first: Any, last: Any) -> float:
        """Seconds on the device."""
        return float(first.elapsed_time(last)) / 1e3


def source_here() -> HostTime:
    """CUDA events where torch has started CUDA in this process, else the host's clock."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return CudaTime(torch)
    return HostTime()


class StepClock:
    """Seconds of the last ``WINDOW`` steps, the first ``SKIPPED`` left out.

    A step with a pause in it (evaluation, checkpoint) is none of them: what it took beyond the
    median counts as ``paused_s``.
    """

    def __init__(self, source: HostTime) -> None:
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.measured = 0
        self._source = source
        self._waiting: deque[tuple[Any, bool]] = deque()
        self._last = source.now()
        self._passed = 0
        self._pausing = False
        self._pauses_s: list[float] = []

    def mark(self) -> None:
        """A step ended; looks at earlier marks that the device has reached, and never waits."""
        self._waiting.append((self._source.now(), self._pausing))
        self._pausing = False
        while self._waiting and self._source.ready(self._waiting[0][0]):
            self._take(*self._waiting.popleft())

    def pause(self) -> None:
        """The step under way holds something that is no step."""
        self._pausing = True

    @property
    def step_s(self) -> float | None:
        """Median seconds of recent steps, None before the first."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def spread_s(self) -> float | None:
        """Seconds between the quartiles of recent steps, None for fewer than two."""
        if len(self.seconds) < 2:
            return None
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return high - low

    @property
    def paused_s(self) -> float:
        """Seconds of all pauses."""
        step_s = self.step_s or 0.0
        return sum(max(0.0, took_s - step_s) for took_s in self._pauses_s)

    def _take(self, mark: Any, paused: bool) -> None:
        took_s = self._source.between(self._last, mark)
        self._last = mark
        self._passed += 1
        if not (math.isfinite(took_s) and took_s > 0):
            return
        if paused:
            self._pauses_s.append(took_s)
        elif self._passed > SKIPPED:
            self.seconds.append(took_s)
            self.measured += 1
