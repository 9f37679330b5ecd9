"""What the daemon says of each request, to its log and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..protocol import HookAnswer


class Ending(StrEnum):
    """How a request was answered."""

    DECIDED = "decided"
    REPEATED = "repeated"  # from the answers kept
    LATE = "late"  # the deadline passed: the job goes on unchanged
    FINISHED_LATE = "finished_late"  # the decision behind a late answer, kept for the next request
    BUSY = "busy"  # too many decisions wait
    MALFORMED = "malformed"
    FAILED = "failed"  # an error of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An answer with the line that carries it, and whose job it is.

    ``id`` is in the answer's ``log``, so that a line of slurmctld.log leads to ours. ``words`` are
    those of ``log``: model, gpu, tier, limit, reason.
    """

    id: str
    ending: Ending
    answer: HookAnswer
    line: bytes
    kind: str = ""
    user: str = ""
    job_name: str = ""
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One request that was answered; ``duration_s`` from its last byte to its answer."""

    decided: Decided
    ending: Ending
    duration_s: float


def words(log: str) -> dict[str, str]:
    """The ``key=value`` words of an answer's log."""
    pairs = (word.partition("=") for word in log.split(" "))
    return {key: value for key, equals, value in pairs if equals and key}
