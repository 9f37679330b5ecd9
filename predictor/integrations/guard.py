"""What keeps a failure of ours out of the user's training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

_log = logging.getLogger(__name__)

PREFIX = "precision-time:"
Result = TypeVar("Result")


class Guard:
    """Runs what must not raise; what failed once is said in one warning and not tried again."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def run(self, what: str, act: Callable[[], Result]) -> Result | None:
        """The result of ``act``, None where it fails or failed before; ``what`` names it."""
        if what in self._failed:
            return None
        try:
            return act()
        except Exception as error:
            self._failed.add(what)
            with contextlib.suppress(Exception):
                _log.warning("%s %s is off: %s", PREFIX, what, _reason(error))
            return None

    def say(self, text: str) -> None:
        """One line on stdout, for whoever started the training."""
        self.run("printing", lambda: print(PREFIX, text, flush=True))


def _reason(error: Exception) -> str:
    return " ".join(f"{error or type(error).__name__}".split())
