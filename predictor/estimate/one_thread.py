"""Small systems are solved by one thread: the threads of BLAS would wait for one another, busily.

On two busy cores a prediction took ten times the processor time with the threads BLAS has by
default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside.

    Afterwards it has what it had before. Where several Python threads were inside at a time that
    may be one: a fit in the same process is slower then, and nothing else.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
