"""The process of a service: its threads, its memory and the time it takes for a request."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

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


def time_bound(seconds: float, *, cpu: bool = False) -> AbstractContextManager[None]:
    """End the block after so many seconds with DeadlineError, if ``cpu`` with CpuBoundError.

    By a timer of the process, so in its main thread alone; elsewhere nothing is bounded.
    """
    main = threading.current_thread() is threading.main_thread()
    return TimeBound(seconds, cpu) if main else nullcontext()


class TimeBound(AbstractContextManager[None]):
    """See ``time_bound``."""

    def __init__(self, seconds: float, cpu: bool) -> None:
        self._seconds, self._cpu = seconds, cpu
        self._kind, self._number, self._clock = signal.ITIMER_REAL, signal.SIGALRM, time.monotonic
        if cpu:
            self._kind, self._number = signal.ITIMER_PROF, signal.SIGPROF
            self._clock = time.thread_time
        self._until_s = 0.0
        self._before: Any = None

    def __enter__(self) -> None:
        self._until_s = self._clock() + self._seconds
        self._before = signal.signal(self._number, self._end)
        signal.setitimer(self._kind, max(self._seconds, 1e-6))

    def __exit__(self, *_: object) -> None:
        signal.signal(self._number, signal.SIG_IGN)  # else `_end` may set the timer once more
        signal.setitimer(self._kind, 0.0)
        signal.signal(self._number, self._before)

    def _end(self, _: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is TimeBound.__exit__.__code__ and frame.f_locals["self"] is self:
                return  # what is over is not ended once more
            frame = frame.f_back
        left_s = self._until_s - self._clock()  # the timer counts other threads too
        signal.setitimer(self._kind, left_s if left_s > 0 else AGAIN_S)
        if left_s <= 0 and self._cpu:
            raise CpuBoundError(f"more than {1000 * self._seconds:g} ms of processor time")
        if left_s <= 0:
            raise DeadlineError
