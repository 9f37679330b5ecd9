"""The GPUs that a job asks for, and the nodes that have them.

Of TRES texts 22.05 writes ``gres:gpu:a100:2``, newer ones ``gres/gpu:a100:2`` and ``gres/gpu=2``.
A count may carry k, m, g, t or p (powers of 1024), a missing one is 1, an entry of 0 is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from profiles.gpus import Gpu, known_gpu

from .cluster import Cluster, GpuGres, SlurmNode
from .config import SlurmHardware
from .constraints import parse
from .protocol import HookRequest
from .sources.words import expand


def gpu_of(node: SlurmNode, gres: GpuGres, hardware: SlurmHardware) -> Gpu | None:
    """The GPU behind one GRES of a node, None where no name tells.

    Asked in this order: ``hardware.node_gpus`` by pattern of the node's name, the GRES type, the
    node's features; GRES types and features first through ``hardware.gpu_types``.
    """
    for pattern, name in hardware.node_gpus.items():
        if fnmatchcase(node.name, pattern):
            return gpu_named(name, hardware)
    if gres.type is not None:
        return gpu_named(gres.type, hardware)
    named = (gpu_named(feature, hardware) for feature in sorted(node.features))
    return next((gpu for gpu in named if gpu is not None), None)


def gpu_named(name: str, hardware: SlurmHardware) -> Gpu | None:
    """The GPU that a GRES type or feature means, None where it means none."""
    return known_gpu(hardware.gpu_types.get(name, name))


def name_of(gpu: Gpu, label: str, hardware: SlurmHardware) -> str:
    """The name of a GPU that the cluster calls so: one such as ``a100`` may mean others as well."""
    name = hardware.gpu_types.get(label, label)
    return name if known_gpu(name) == gpu else gpu.name


@dataclass(frozen=True, slots=True)
class PoolGpus:
    """GPUs of one type on every node of a pool; ``gpu`` is None where we do not know the type."""

    gres: GpuGres
    gpu: Gpu | None

    @property
    def label(self) -> str:
        """What the cluster calls the type."""
        return self.gres.type or (self.gpu.name if self.gpu else "without a type")


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes of the same partitions, features and GPUs; ``usable`` are those not down or drained."""

    partitions: frozenset[str]
    features: frozenset[str]
    gpus: tuple[PoolGpus, ...]
    names: tuple[str, ...]
    usable: frozenset[str]


def pools_of(cluster: Cluster, hardware: SlurmHardware) -> tuple[NodePool, ...]:
    """The nodes of a view by kind, without those that have no GPUs."""
    alike: dict[tuple[object, ...], list[tuple[SlurmNode, tuple[PoolGpus, ...]]]] = {}
    for node in cluster.nodes:
        if node.gpus:
            gpus = tuple(PoolGpus(gres, gpu_of(node, gres, hardware)) for gres in node.gpus)
            types = tuple((g.gres, g.gpu.name if g.gpu else None) for g in gpus)
            alike.setdefault((node.partitions, node.features, types), []).append((node, gpus))
    pools = []
    for nodes in alike.values():
        first, gpus = nodes[0]
        names = tuple(node.name for node, _ in nodes)
        usable = frozenset(node.name for node, _ in nodes if node.usable)
        pools.append(NodePool(frozenset(first.partitions), first.features, gpus, names, usable))
    return tuple(pools)


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """Nodes that are alike, with ``count`` GPUs of one type each.

    ``gpu`` is None where we do not know the type, ``label`` what the cluster calls it. ``usable``
    counts the nodes that are not down or drained.
    """

    names: tuple[str, ...]
    usable: int
    features: frozenset[str]
    gpu: Gpu | None
    count: int
    label: str


def candidates(
    pools: Iterable[NodePool], request: HookRequest, wanted: GpuRequest, partitions: Iterable[str]
) -> tuple[CandidateNodes, ...]:
    """Nodes of ``partitions`` that the request allows and whose GPUs suffice, down ones too.

    A constraint in a form we do not reason about excludes nothing, so a limit covers too many
    GPU types rather than too few.
    """
    asked = frozenset(partitions)
    constraint = parse(request.features) if request.features else None
    excluded = frozenset(expand(request.exc_nodes or ""))
    required = frozenset(expand(request.req_nodes or ""))
    if wanted.nodes is not None and len(required) < wanted.nodes:
        required = frozenset()  # the job takes other nodes besides
    found: list[CandidateNodes] = []
    for pool in pools:
        if not asked & pool.partitions:
            continue
        if constraint is not None and not constraint.matches(pool.features):
            continue
        names = pool.names
        if excluded or required:
            names = tuple(n for n in names if n not in excluded and (not required or n in required))
        usable = len(pool.usable.intersection(names))
        for one in pool.gpus if names else ():
            kind, count = one.gres.type, one.gres.count
            allowed = not wanted.types or kind in (None, *wanted.types)
            if count >= (wanted.gpus_per_node or 1) and allowed:
                nodes = CandidateNodes(names, usable, pool.features, one.gpu, count, one.label)
                found.append(nodes)
    return tuple(found)


def suffice(found: Sequence[CandidateNodes], wanted: GpuRequest) -> bool:
    """True where usable nodes among ``found`` could hold the whole job at some time."""
    per_node = wanted.gpus_per_node
    if per_node is not None:
        enough = sum(c.usable for c in found if c.count >= per_node)
        return enough >= -(-wanted.gpus // per_node)
    if wanted.nodes is not None and sum(c.usable for c in found) < wanted.nodes:
        return False
    return sum(c.usable * c.count for c in found) >= wanted.gpus


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


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry of a TRES text; ``name`` is ``gpu``, ``shard``, ``cpu`` ..."""

    name: str
    type: str | None
    count: int


def gpu_request(request: HookRequest) -> GpuRequest | None:
    """The GPUs a job asks for; None where there are none, or a text Slurm would refuse."""
    entries = _asked(request)
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
    entries = _asked(request)
    every = [gres for found in entries.values() for gres in found]
    gpus = [gres for gres in every if gres.name == "gpu"]
    here = [gres for gres in entries.get("tres_per_node", ()) if gres.name == "gpu"]
    if len(gpus) != 1 or gpus != here or gpus[0].type is not None:
        return None
    if any(gres.name in SHARED for gres in every) or not _TYPE.fullmatch(gpu_type):
        return None
    texts = (_PREFIX.sub("", text, count=1) for text in _split(request.tres_per_node))
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
        each = request.ntasks_per_node or 0
        tasks = request.num_tasks or (nodes or 1) * (each or 1)
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


def _gpus(entries: Sequence[Gres]) -> int:
    return sum(gres.count for gres in entries if gres.name == "gpu")


def _asked(request: HookRequest) -> dict[str, tuple[Gres, ...]]:
    """What each TRES text asks for, without entries of 0; empty where GPUs are malformed."""
    try:
        return {
            field: tuple(gres for gres in map(_gres, _split(getattr(request, field))) if gres.count)
            for field in FIELDS
        }
    except ValueError:
        return {}


def _split(text: str | None) -> list[str]:
    """The entries of a list, without the ``(S:0)`` of a node's own notation."""
    return [part.strip() for part in _OUTSIDE.sub("", text or "").split(",") if part.strip()]


def _gres(text: str) -> Gres:
    name, *rest = re.split(r"[:=]", _PREFIX.sub("", text, count=1))
    if name != "gpu" and name not in SHARED:
        return Gres(name, None, 1)
    rest = [part for part in rest if part != "no_consume"]
    if not rest:
        return Gres(name, None, 1)
    counted = _COUNT.fullmatch(rest[-1])
    kind = rest[:-1] if counted else rest
    if len(kind) > 1 or (kind and not _TYPE.fullmatch(kind[0])):
        raise ValueError(f"invalid GRES {text!r}; expected gpu[:type][:count]")
    power = _POWERS.index(counted[2].lower() or " ") if counted else 0
    return Gres(name, kind[0] if kind else None, int(counted[1]) << 10 * power if counted else 1)
