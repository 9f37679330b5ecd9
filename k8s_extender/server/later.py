"""Work that nobody waits for: done when the answers it follows have left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

# kube-scheduler asks for scores within a millisecond of a filter's answer.
DELAY_S = 0.002


class Later:
    """Does what it is given, in order; used by the loop's thread."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, work: Callable[[], None]) -> None:
        """Take a piece of work, to be done after ``DELAY_S`` at the latest."""
        self._waiting.append(work)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self.run)

    def soon(self) -> None:
        """Do what waits once the answer of this moment has left."""
        asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> None:
        """Do what waits; what fails is logged and keeps nothing else from being done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            try:
                work()
            except Exception:
                _log.exception("what follows an answer failed")
