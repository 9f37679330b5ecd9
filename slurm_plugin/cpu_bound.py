"""Work that may take so much processor time and no more, whatever a user wrote."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import SlurmError


class CpuBoundError(SlurmError):
    """It took more processor time than it may."""


@contextmanager
def cpu_bound(seconds: float) -> Iterator[None]:
    """End the block with CpuBoundError once it has used so many seconds of processor time.

    By a timer of the process, so in its main thread alone; elsewhere nothing is bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise CpuBoundError(f"more than {1000 * seconds:g} ms of processor time")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
