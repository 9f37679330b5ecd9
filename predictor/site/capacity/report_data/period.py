"""What a report covers, and where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A central 95 % interval and its median."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPeriod:
    """What the report covers: from ``since_s`` up to, not including, ``until_s``."""

    since_s: float
    until_s: float

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.until_s - self.since_s) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Jobs that count nowhere, and why; ``example`` is the number of one of them."""

    reason: str
    jobs: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the jobs come from; ``sample`` marks generated ones."""

    kind: str
    name: str
    jobs: int
    sample: bool = False
    set_aside: tuple[SetAside, ...] = ()
