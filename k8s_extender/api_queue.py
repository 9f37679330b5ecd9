"""Calls to the API server that nobody waits for: a bounded queue and a thread that works it off."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from kubernetes.client.exceptions import ApiException

from .watching import FAILURES, body_of, said

_log = logging.getLogger(__name__)
CAPACITY = 2000
ATTEMPTS = 6
RETRY_S, MAX_RETRY_S = 0.5, 30.0
TOO_MANY, SERVER_ERROR = 429, 500
# The object is gone, is another one, holds what we say already, or is no longer what we saw.
SETTLED = frozenset((404, 409, 410, 422))


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to make. ``lost`` is called where it could not be made, by any thread."""

    make: Callable[[], Any]
    lost: Callable[[], None]


class ApiQueue:
    """Makes calls one after another, in a thread of its own.

    A full queue drops new calls. Answers 429 and 5xx and broken connections are tried again with
    growing pauses, as long as Retry-After where the server sends it. ``counts`` says what became
    of the calls: done, settled, dropped, failed; retried counts attempts.
    """

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        retry_s: float = RETRY_S,
        max_retry_s: float = MAX_RETRY_S,
    ) -> None:
        self.counts = Counter[str]()
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
            self.counts["dropped"] += 1
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
                self.counts[self._made(call)] += 1
                self._error = ""
            except Exception as error:
                self.counts["failed"] += 1
                call.lost()
                if said(error) != self._error:
                    self._error = said(error)
                    _log.warning("write-back: %s", self._error)

    def _made(self, call: ApiCall) -> str:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                body_of(call.make())
                return "done"
            except FAILURES as error:
                status = error.status or 0 if isinstance(error, ApiException) else SERVER_ERROR
                if status in SETTLED:
                    return "settled"
                passing = status == TOO_MANY or status >= SERVER_ERROR
                if attempt == ATTEMPTS or self._ended.is_set() or not passing:
                    raise
                self.counts["retried"] += 1
                self._ended.wait(self._pause_s(attempt, error))
        raise AssertionError("the last attempt returns or raises")

    def _pause_s(self, attempt: int, error: Exception) -> float:
        told = (getattr(error, "headers", None) or {}).get("Retry-After", "")
        if told.isascii() and told.isdigit() and len(told) < 6:
            return min(float(told), self._max_retry_s)
        return random.uniform(0.5, 1.0) * min(self._max_retry_s, self._retry_s * 2.0**attempt)


class Recent:
    """Remembers the last ``most`` subjects with what was last said of each; safe in threads."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._said: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()

    def claim(
        self, subject: Hashable, words: Hashable, *, least_s: float, repeat_s: float | None
    ) -> bool:
        """True where it is to be said now; it counts as said then.

        Other words wait until ``least_s`` after the last ones, the same words until ``repeat_s``,
        or for ever.
        """
        now = time.monotonic()
        with self._lock:
            last = self._said.get(subject)
            if last is not None:
                wait_s = least_s if last[0] != words else repeat_s
                if wait_s is None or now - last[1] < wait_s:
                    return False
            self._said[subject] = (words, now)
            self._said.move_to_end(subject)
            if len(self._said) > self._most:
                self._said.popitem(last=False)
            return True

    def forget(self, subject: Hashable) -> None:
        """As if nothing had been said of it."""
        with self._lock:
            self._said.pop(subject, None)
