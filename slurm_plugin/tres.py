"""How many GPUs a job asks for, from the TRES options of every Slurm version.

22.05 writes ``gres:gpu:a100:2``, newer ones ``gres/gpu:a100:2`` and ``gres/gpu=2``; a count may
carry k, m, g, t or p (powers of 1024), a missing one is 1, and an entry of 0 counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .protocol import HookRequest

# GRES that are parts of a GPU; a job with them has no GPU of its own.
SHARED = frozenset({"mps", "shard"})
FIELDS = ("tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket")

_PREFIX = re.compile(r"gres[:/]")
_OUTSIDE = re.compile(r"\([^)]*\)")
_COUNT = re.compile(r"(\d{1,15})([kmgtp]?)", re.IGNORECASE)
_TYPE = re.compile(r"[^\s:,=/()]+")
_POWERS = " kmgtp"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """The GPUs of one job.

    ``gpus`` is the total over all nodes, 0 for a ``shared`` job, which gets parts of GPUs.
    ``nodes`` is the least number of nodes, ``gpus_per_node`` the GPUs on each; both are None where
    Slurm chooses. ``type`` is the GRES type all GPUs have, ``types`` every type asked for.
    """

    gpus: int
    nodes: int | None
    gpus_per_node: int | None
    type: str | None = None
    types: tuple[str, ...] = ()
    shared: bool = False

    @property
    def typed(self) -> bool:
        """True where the user named a GPU type."""
        return bool(self.types)


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry of a TRES text; ``name`` is ``gpu``, ``shard``, ``cpu`` ..."""

    name: str
    type: str | None
    count: int


def gpu_request(request: HookRequest) -> GpuRequest | None:
    """The GPUs a job asks for; None where there are none, or a text Slurm would refuse."""
    try:
        entries = {field: _entries(getattr(request, field)) for field in FIELDS}
    except ValueError:
        return None
    every = [gres for found in entries.values() for gres in found]
    if any(gres.name in SHARED for gres in every):
        return GpuRequest(gpus=0, nodes=_nodes(request), gpus_per_node=None, shared=True)
    kinds = [gres.type for gres in every if gres.name == "gpu"]
    if not kinds:
        return None
    types = tuple(dict.fromkeys(kind for kind in kinds if kind is not None))
    total = _total({field: _gpus(entries[field]) for field in FIELDS}, request)
    only = types[0] if len(types) == 1 and None not in kinds else None
    return replace(total, type=only, types=types)


def with_type(request: HookRequest, gpu_type: str) -> str | None:
    """The value for ``job_desc.gres`` that gives the job's GPUs a type, None where it must not be.

    The user's own count and other GRES stay. Slurm refuses a job whose GPUs are stated both with
    and without a type, so only a single untyped ``--gres`` or ``--gpus-per-node`` is rewritten.
    """
    try:
        entries = {field: _entries(getattr(request, field)) for field in FIELDS}
    except ValueError:
        return None
    every = [gres for found in entries.values() for gres in found]
    gpus = [gres for gres in every if gres.name == "gpu"]
    here = [gres for gres in entries["tres_per_node"] if gres.name == "gpu"]
    if len(gpus) != 1 or gpus != here or gpus[0].type is not None:
        return None
    if any(gres.name in SHARED for gres in every) or not _TYPE.fullmatch(gpu_type):
        return None
    texts = (_PREFIX.sub("", text, count=1) for text in _split(request.tres_per_node or ""))
    typed = f"gpu:{gpu_type}:{gpus[0].count}"
    return ",".join(typed if _gres(text) == gpus[0] else text for text in texts)


def _total(counts: dict[str, int], request: HookRequest) -> GpuRequest:
    """GPUs and how they lie on nodes, as slurmctld allocates them."""
    per_job, per_task = counts["tres_per_job"], counts["tres_per_task"]
    sockets = request.sockets_per_node or 1
    per_node = counts["tres_per_node"] or counts["tres_per_socket"] * sockets
    nodes = _nodes(request)
    if per_node and not per_job:
        nodes = max(nodes or 1, -(-per_task * (request.num_tasks or 0) // per_node))
        return GpuRequest(gpus=per_node * nodes, nodes=nodes, gpus_per_node=per_node)
    if per_node:
        nodes = -(-per_job // per_node)
        return GpuRequest(gpus=per_job, nodes=nodes, gpus_per_node=per_node)
    if not per_job:
        tasks, each = _tasks(request), request.ntasks_per_node or 0
        per_job = per_task * tasks
        per_node = per_task * each if nodes and tasks == nodes * each else 0
    if nodes == 1 and request.max_nodes == 1:
        per_node = per_job
    return GpuRequest(gpus=per_job, nodes=nodes, gpus_per_node=per_node or None)


def _nodes(request: HookRequest) -> int | None:
    """The least number of nodes, None where the request leaves it open."""
    if request.min_nodes:
        return request.min_nodes
    if request.num_tasks and request.ntasks_per_node:
        return -(-request.num_tasks // request.ntasks_per_node)
    return None


def _tasks(request: HookRequest) -> int:
    return request.num_tasks or (_nodes(request) or 1) * (request.ntasks_per_node or 1)


def _gpus(entries: Sequence[Gres]) -> int:
    return sum(gres.count for gres in entries if gres.name == "gpu")


def _entries(text: str | None) -> tuple[Gres, ...]:
    """What a TRES text asks for, without entries of 0; raises ValueError for malformed GPUs."""
    return tuple(gres for gres in map(_gres, _split(text or "")) if gres.count)


def _split(text: str) -> list[str]:
    """The entries of a list, without the ``(S:0)`` of a node's own notation."""
    return [part.strip() for part in _OUTSIDE.sub("", text).split(",") if part.strip()]


def _gres(text: str) -> Gres:
    name, *rest = re.split(r"[:=]", _PREFIX.sub("", text, count=1))
    if name != "gpu" and name not in SHARED:
        return Gres(name, None, 1)
    rest = [part for part in rest if part != "no_consume"]
    if not rest:
        return Gres(name, None, 1)
    count = _number(rest[-1])
    kind = rest if count is None else rest[:-1]
    if len(kind) > 1 or (kind and not _TYPE.fullmatch(kind[0])):
        raise ValueError(f"invalid GRES {text!r}; expected gpu[:type][:count]")
    return Gres(name, kind[0] if kind else None, 1 if count is None else count)


def _number(text: str) -> int | None:
    found = _COUNT.fullmatch(text)
    if found is None:
        return None
    return int(found[1]) << 10 * _POWERS.index(found[2].lower() or " ")
