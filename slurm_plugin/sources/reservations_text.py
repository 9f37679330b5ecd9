"""Reservations of nodes, from ``scontrol``'s text, which every version prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..hostlist import expand
from .base import pairs
from .commands import Commands
from .words import listed, stated, unix_s

_CPUS = re.compile(r"\bcpu=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """Nodes kept from ``begin_s`` to ``end_s`` (Unix seconds); ``whole`` with all their CPUs.

    One that is ``floating`` begins so much later than now, whenever that is.
    """

    name: str
    nodes: frozenset[str]
    begin_s: float
    end_s: float
    whole: bool = True
    floating: bool = False


def read(commands: Commands) -> tuple[SlurmReservation, ...]:
    """Those of nodes, by name; raises SourceError."""
    lines = commands.text("scontrol", "-a", "show", "reservation", "-o").splitlines()
    found = [pairs(line) for line in lines if line.startswith("ReservationName=")]
    cpus = _cpus(commands) if found else {}
    kept = (_reservation(one, cpus) for one in found)
    return tuple(sorted((one for one in kept if one), key=lambda one: one.name))


def _reservation(found: Mapping[str, str], cpus: Mapping[str, int]) -> SlurmReservation | None:
    nodes = frozenset(expand(stated(found.get("Nodes", ""))))
    begin_s, end_s = (unix_s(found.get(key, "")) for key in ("StartTime", "EndTime"))
    if not nodes or begin_s is None or end_s is None or begin_s >= end_s:
        return None
    kept = _CPUS.search(found.get("TRES", ""))
    return SlurmReservation(
        name=found["ReservationName"],
        nodes=nodes,
        begin_s=begin_s,
        end_s=end_s,
        whole=kept is None or int(kept[1]) >= sum(cpus.get(node, 0) for node in nodes),
        floating="TIME_FLOAT" in listed(found.get("Flags", "")),
    )


def _cpus(commands: Commands) -> dict[str, int]:
    """CPUs of each node."""
    words = (
        line.split()
        for line in commands.text("sinfo", "-h", "-a", "-N", "-o", "%N %c").splitlines()
    )
    return {name: int(number) for name, number in words if number.isdecimal()}
