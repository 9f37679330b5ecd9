"""GPUs in Slurm's texts: GRES of a node, TRES of a job, and what a job asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..cluster import GpuGres

# gpu:4, gpu:a100:2(S:0-1), gpu:1g.10gb:7, gpu:a100:no_consume:4
_GRES = re.compile(r"gpu(?::(?P<type>[^:(,]+?))?(?::no_consume)?:(?P<count>\d+)(?:\([^)]*\))?")
# gres/gpu=2, gres/gpu:a100=2 of TRES; gres:gpu:a100:2, gres/gpu:2, gres:gpu of requests
_TRES = re.compile(r"gres[/:]gpu(?::(?P<type>[^:=,]*[^:=,\d][^:=,]*))?(?:[:=](?P<count>\d+))?")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of a job; ``type`` is None where none, or more than one, is named."""

    count: int = 0
    type: str | None = None

    def times(self, factor: int) -> Gpus:
        """As many of each."""
        return Gpus(self.count * factor, self.type)


def node_gres(text: str) -> tuple[GpuGres, ...]:
    """GPUs of a node's Gres or GresUsed, in the order given; other GRES are left out."""
    matches = (_GRES.fullmatch(part) for part in _OUTSIDE_PARENTHESES.split(text))
    return tuple(GpuGres(m["type"], int(m["count"])) for m in matches if m)


def gpus_used(text: str) -> int:
    """GPUs of all types in a node's GresUsed."""
    return sum(gres.count for gres in node_gres(text))


def tres_gpus(text: str) -> Gpus:
    """GPUs of a TRES list or of a request such as tres_per_node.

    A list holds the total (``gres/gpu=4``), the types (``gres/gpu:a100=4``), or both.
    """
    matches = (_TRES.fullmatch(part) for part in text.split(","))
    return typed({m["type"]: int(m["count"] or 1) for m in matches if m})


def typed(counts: Mapping[str | None, int]) -> Gpus:
    """GPUs by type, None for the total or the untyped ones."""
    types = {name: count for name, count in counts.items() if name}
    total = max(counts.get(None, 0), sum(types.values()))
    return Gpus(total, next(iter(types)) if len(types) == 1 else None)


def asked_gpus(
    *, per_job: str, per_node: str, per_task: str, per_socket: str, nodes: int, tasks: int
) -> Gpus:
    """What a job asked for; a request per socket counts one socket a node, the least there is."""
    asked = (
        tres_gpus(per_job),
        tres_gpus(per_node).times(nodes),
        tres_gpus(per_task).times(tasks),
        tres_gpus(per_socket).times(nodes),
    )
    return first(asked)


def first(choices: Iterable[Gpus]) -> Gpus:
    """The first that has GPUs, with the type of a later one where it names none."""
    having = [gpus for gpus in choices if gpus.count]
    if not having:
        return Gpus()
    return Gpus(having[0].count, next((gpus.type for gpus in having if gpus.type), None))
