"""Small systems are solved by one thread: the threads of BLAS would wait for one another, busily.

On two busy cores a prediction takes ten times the processor time with the threads BLAS has by
default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_held: list[Any] = []  # one entry for each that is inside; the first can undo the limit


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside; the limit holds until the last thread of Python is out."""
    with _lock:
        _held.append(None if _held else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            if len(_held) > 1:
                _held.pop()
            else:
                _held.pop().restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
