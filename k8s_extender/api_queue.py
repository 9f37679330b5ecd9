"""Calls to the API server that nobody waits for: a bounded queue and a thread that works it off."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from kubernetes.client.exceptions import ApiException

from .api_calls import FAILURES, body_of, said

_log = logging.getLogger(__name__)
CAPACITY = 2000
ATTEMPTS = 6
RETRY_S, MAX_RETRY_S = 0.5, 30.0
TOO_MANY, SERVER_ERROR = 429, 500
# The object is gone, is another one, or holds what we say already: nothing is left to do.
SETTLED = frozenset((404, 409, 410))


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to make. ``lost`` is called where it could not be made, by any thread."""

    make: Callable[[], Any]
    lost: Callable[[], None]


@dataclass(slots=True)
class CallCounts:
    """What became of the calls; ``retried`` counts attempts, the others calls."""

    done: int = 0
    settled: int = 0
    dropped: int = 0
    failed: int = 0
    retried: int = 0


class ApiQueue:
    """Makes calls one after another, in a thread of its own.

    A full queue drops new calls. Answers 429 and 5xx and broken connections are tried again with
    growing pauses, as long as Retry-After where the server sends it.
    """

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        retry_s: float = RETRY_S,
        max_retry_s: float = MAX_RETRY_S,
    ) -> None:
        self.counts = CallCounts()
        self._queue: SimpleQueue[ApiCall | None] = SimpleQueue()
        self._capacity = capacity
        self._retry_s = retry_s
        self._max_retry_s = max_retry_s
        self._ended = threading.Event()
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="write-back", daemon=True)
        self._thread.start()

    def put(self, call: ApiCall) -> bool:
        """Take a call, at once; False where the queue is full or at its end."""
        if self._ended.is_set() or self._queue.qsize() >= self._capacity:
            self.counts.dropped += 1
            call.lost()
            return False
        self._queue.put(call)
        return True

    def stop(self, timeout_s: float = 5.0) -> None:
        """Make the calls that wait, without pauses between attempts, and end."""
        self._ended.set()
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                self._make(call)
            except Exception as error:
                self._lost(call, error)

    def _make(self, call: ApiCall) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                body_of(call.make())
            except FAILURES as error:
                if isinstance(error, ApiException) and error.status in SETTLED:
                    self.counts.settled += 1
                    return
                if attempt == ATTEMPTS or self._ended.is_set() or not _passing(error):
                    raise
                self.counts.retried += 1
                self._ended.wait(self._pause_s(attempt, error))
            else:
                self.counts.done += 1
                self._error = ""
                return

    def _lost(self, call: ApiCall, error: Exception) -> None:
        self.counts.failed += 1
        call.lost()
        if said(error) != self._error:
            self._error = said(error)
            _log.warning("write-back: %s", self._error)

    def _pause_s(self, attempt: int, error: Exception) -> float:
        asked_s = _retry_after_s(error)
        if asked_s is not None:
            return min(asked_s, self._max_retry_s)
        return random.uniform(0.5, 1.0) * min(self._max_retry_s, self._retry_s * 2.0**attempt)


def _passing(error: Exception) -> bool:
    """Whether another attempt may go better."""
    if not isinstance(error, ApiException):
        return True
    status = error.status or 0
    return status == TOO_MANY or status >= SERVER_ERROR


def _retry_after_s(error: Exception) -> float | None:
    headers = getattr(error, "headers", None) or {}
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
