"""The process of a service: its threads, its memory and the time it takes for a request."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Whoever answers gets the interpreter back from the other threads within this.
SWITCH_S = 0.0005


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


def _end(number: int, frame: FrameType | None) -> None:
    raise DeadlineError


@contextmanager
def time_bound(seconds: float) -> Iterator[None]:
    """End the block with DeadlineError after so many seconds, in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
