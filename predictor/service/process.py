"""The process of a service: its threads and its memory."""

from __future__ import annotations

import gc
import os
import sys

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
