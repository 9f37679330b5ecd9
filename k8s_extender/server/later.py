"""Work that nobody waits for: done a moment later, when the answers it follows have left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

# kube-scheduler asks for scores within a millisecond of a filter's answer.
DELAY_S = 0.002


class Later:
    """Does what it is given in order, after ``DELAY_S`` or at `run`; used by the loop's thread."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        """Take a piece of work; one timer serves all that come before it ends."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(DELAY_S, self.run)
        self._waiting.append(work)

    def run(self) -> None:
        """Do what waits; what fails is logged and keeps nothing else from being done."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            try:
                work()
            except Exception:
                _log.exception("what follows an answer failed")
