"""What pending jobs wait for, from ``squeue``'s text, whichever way the queue itself is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .base import table
from .commands import Commands
from .queue_items import array_tasks
from .words import stated, unix_s

FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "Reason",
    "Dependency",
    "EligibleTime",
    "Reservation",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Slurm's words on one pending job; ``eligible_s`` in Unix seconds, None where not known.

    ``at_most`` tasks of its array run at once, None where it states no such number.
    """

    reason: str = ""
    dependency: str = ""
    eligible_s: float | None = None
    reservation: str = ""
    at_most: int | None = None


def read(commands: Commands) -> Mapping[str, Waiting]:
    """Those of all pending jobs by their label; raises SourceError."""
    # without -r, for only the record of all waiting tasks tells how many may run at once
    found = list(table(commands, FIELDS, "-t", "PENDING"))
    most = {row["ArrayJobID"]: n for row in found if (n := _at_most(row)) is not None}
    return {
        label: _waiting(row, most.get(row["ArrayJobID"])) for row in found for label in _labels(row)
    }


def _labels(row: Mapping[str, str]) -> list[str]:
    tasks = [f"{row['ArrayJobID']}_{task}" for task in array_tasks(row["ArrayTaskID"])]
    if row["HetJobID"].isdecimal() and row["HetJobID"] != "0":
        return [f"{row['HetJobID']}+{row['HetJobOffset']}"]
    return tasks or [row["JobID"]]


def _at_most(row: Mapping[str, str]) -> int | None:
    number = row["ArrayTaskID"].partition("%")[2]
    return int(number) if number.isdecimal() else None


def _waiting(row: Mapping[str, str], at_most: int | None) -> Waiting:
    return Waiting(
        reason=stated(row["Reason"]),
        dependency=stated(row["Dependency"]),
        eligible_s=unix_s(row["EligibleTime"]),
        reservation=stated(row["Reservation"]),
        at_most=at_most,
    )
