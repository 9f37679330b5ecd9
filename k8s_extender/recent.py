"""What was said lately, so that it is not said again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable


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
