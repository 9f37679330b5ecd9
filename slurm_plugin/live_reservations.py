"""GPUs that reservations keep from other jobs, as the capacity report replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from predictor.site.replay import Away

from .live_places import Place
from .sources.reservations_text import SlurmReservation


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGpus:
    """GPUs away by type in Unix seconds, the nodes that are kept now, and a line on each."""

    away: tuple[Away, ...] = ()
    nodes: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def kept(
    reservations: Iterable[SlurmReservation], places: Sequence[Place], at_s: float
) -> KeptGpus:
    """What they keep from ``at_s`` on; those of parts of nodes only get a note."""
    away: list[Away] = []
    notes: list[str] = []
    nodes: set[str] = set()
    for one in reservations:
        gpus: Counter[str] = Counter()
        for place in places:
            gpus[place.name] += place.count if place.node.name in one.nodes else 0
        gpus = +gpus
        if not gpus or one.end_s <= at_s:
            continue
        notes.append(_note(one, gpus, at_s))
        if not one.whole or one.floating:
            continue
        away += [
            Away(pool=name, gpus=count, from_s=one.begin_s, until_s=one.end_s)
            for name, count in gpus.items()
        ]
        nodes |= one.nodes if one.begin_s <= at_s else set()
    return KeptGpus(away=tuple(away), nodes=frozenset(nodes), notes=tuple(notes))


def _note(one: SlurmReservation, gpus: Counter[str], at_s: float) -> str:
    what = ", ".join(f"{count} x {name}" for name, count in sorted(gpus.items()))
    if one.floating:
        return f"Reservation {one.name} of {what} floats: not simulated."
    if not one.whole:
        return f"Reservation {one.name} takes some cores of the nodes of {what}: not simulated."
    begins = "" if one.begin_s <= at_s else f" from {_utc(one.begin_s)}"
    return f"Reservation {one.name} keeps {what}{begins} until {_utc(one.end_s)} UTC."


def _utc(moment_s: float) -> str:
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M}"
