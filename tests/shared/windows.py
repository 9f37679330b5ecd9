"""The period of a report, and what a test adds up in it by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A period in Unix seconds."""

    since_s: int
    until_s: int

    def seconds(self, start_s: int, end_s: int) -> int:
        """How long something lay inside."""
        return max(0, min(end_s, self.until_s) - max(start_s, self.since_s))

    @property
    def words(self) -> tuple[str, ...]:
        """The options that name it."""
        return ("--since", iso(self.since_s), "--until", iso(self.until_s))


def iso(moment_s: int) -> str:
    """Unix seconds as text."""
    return datetime.fromtimestamp(moment_s, UTC).isoformat()
