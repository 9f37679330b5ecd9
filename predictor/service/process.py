"""The process of a service: its threads, its memory and the time it takes for a request."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Whoever answers gets the interpreter back from the other threads within this.
SWITCH_S = 0.0005
# An error raised in a callback of the collector or in ``__del__`` is lost: it comes again after.
AGAIN_S = 0.005


def one_thread_for_algebra() -> None:
    """Decisions are small products: threads of a BLAS cost more than they save.

    To be called before numpy is imported.
    """
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")


def settle_memory() -> None:
    """Let go of a former predictor, and have collections pass over what was loaded."""
    sys.setswitchinterval(SWITCH_S)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class DeadlineError(BaseException):
    """It took longer than it may; no ``except Exception`` on its way keeps it."""


class CpuBoundError(Exception):
    """It used more processor time than it may."""


@contextmanager
def time_bound(seconds: float, *, cpu: bool = False) -> Iterator[None]:
    """End the block after so many seconds with DeadlineError, if ``cpu`` with CpuBoundError.

    By a timer of the process, so in its main thread alone; elsewhere nothing is bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kind, number, clock = signal.ITIMER_REAL, signal.SIGALRM, time.monotonic
    if cpu:
        kind, number, clock = signal.ITIMER_PROF, signal.SIGPROF, time.thread_time
    until_s = clock() + seconds  # the timer of processor time counts other threads too

    def end(_: int, frame: FrameType | None) -> None:
        left_s = until_s - clock()
        signal.setitimer(kind, left_s if left_s > 0 else AGAIN_S)
        if left_s <= 0 and cpu:
            raise CpuBoundError(f"more than {1000 * seconds:g} ms of processor time")
        if left_s <= 0:
            raise DeadlineError

    before = signal.signal(number, end)
    signal.setitimer(kind, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)  # else `end` may set the timer once more
        signal.setitimer(kind, 0.0)
        signal.signal(number, before)
