"""The nodes of the cluster and the GPUs that their labels tell, kept up to date by a watch."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kubernetes import client as api

from profiles.gpus import Gpu, known_gpu
from profiles.storage import shipped_yaml

from .config import Config, Hardware
from .plain import at, count, items, mapping, text, texts
from .watching import PAGE, KubeObject, ObjectWatch, objects


@dataclass(frozen=True, slots=True)
class GpuType:
    """The GPUs of a node, as one type: nodes of equal type get one prediction.

    ``gpu`` is None where no label tells a GPU we know; ``product`` is what the label says.
    ``memory_bytes`` is of one allocatable device: a slice under MIG. ``mig`` is the profile such
    as ``1g.10gb`` (``mig_share`` its part of the GPU's SMs), ``replicas`` how many pods share one
    GPU by time slicing or MPS. ``count`` is the devices of one node, ``label`` the label of nodes
    whose value ``product`` is.
    """

    product: str
    gpu: Gpu | None = field(hash=False)
    count: int
    memory_bytes: int | None = None
    mig: str | None = None
    mig_share: float = 1.0
    replicas: int = 1
    label: str = ""

    @property
    def whole(self) -> bool:
        """True where a pod gets whole GPUs of its own."""
        return self.mig is None and self.replicas == 1


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with its labels; ``type`` is None for a node without GPUs.

    ``slices`` are the slices under the MIG strategy ``mixed``, by the resource that counts them,
    and what a class of devices gives to who names it as a resource, None for nothing.
    ``takes_pods`` is False while it is cordoned or not ready, ``taints`` are plain JSON.
    """

    name: str
    type: GpuType | None
    labels: Mapping[str, str] = field(default_factory=dict)
    slices: Mapping[str, GpuType | None] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    takes_pods: bool = True

    def type_for(self, resource: str) -> GpuType | None:
        """What a pod that asks for a resource gets here; None where nothing is known of it."""
        return self.slices.get(resource, None if "/mig-" in resource else self.type)


GPU = "nvidia.com/gpu."
SHARED = "-SHARED"
RESOURCE_PREFIX = "nvidia.com/mig-"
MIB = 2**20
_PROFILE = re.compile(r"(?:(\d)c\.)?(\d)g\.(\d{1,3})gb(?:[.+][a-z0-9.]{1,16})?", re.ASCII)
_PRODUCT = re.compile(r"(.+)-MIG-([0-9a-z.+]{1,32})", re.ASCII)


def gpu_node(node: Mapping[str, Any], hardware: Hardware) -> GpuNode:
    """A node of the API, as decisions see it; a node without known labels has no type.

    Labels of GPU feature discovery go before the site's own label (``hardware.node_label``). Under
    the MIG strategy ``mixed`` the slices are in ``slices``, by the resource that counts them; under
    ``single`` they are the node's type. A node takes pods unless it is cordoned or not ready.
    """
    labels = {sys.intern(k): sys.intern(v) for k, v in texts(node, "metadata", "labels").items()}
    # What pods may get goes before what is built in.
    offered = {**mapping(node, "status", "capacity"), **mapping(node, "status", "allocatable")}
    devices = max((count(offered, resource) or 0 for resource in hardware.resources), default=0)
    product, site = labels.get(f"{GPU}product"), labels.get(hardware.node_label or "")
    whole = None
    if product:
        devices = count(labels, f"{GPU}count") or devices // _replicas(labels, GPU)
        if devices:
            whole = _labelled(labels, GPU, _taken_apart(product)[1], devices, hardware)
    elif site and devices:
        gpu = known_gpu(hardware.node_label_gpus.get(site, site))
        memory = None if gpu is None else gpu.memory_bytes
        whole = _same(GpuType(site, gpu, devices, memory, label=hardware.node_label or ""))
    slices = {}
    for resource in offered:
        profile = resource.removeprefix(RESOURCE_PREFIX)
        if profile != resource and _PROFILE.fullmatch(profile) and (n := count(offered, resource)):
            n = count(labels, f"{resource}.count") or n
            kind = _labelled(labels, f"{resource}.", profile, n, hardware)
            slices[sys.intern(resource)] = kind
    ready = [c for c in items(node, "status", "conditions") if text(c, "type") == "Ready"]
    return GpuNode(
        name=sys.intern(text(node, "metadata", "name")),
        type=whole,
        labels=labels,
        slices=slices,
        taints=[texts(taint) for taint in items(node, "spec", "taints")],
        takes_pods=at(node, "spec", "unschedulable") is not True
        and all(text(condition, "status") == "True" for condition in ready),
    )


def _labelled(
    labels: Mapping[str, str], prefix: str, profile: str | None, devices: int, hardware: Hardware
) -> GpuType:
    """What labels with a prefix tell of so many devices, those of the whole GPU where they lack."""
    named = prefix if f"{prefix}product" in labels else GPU
    label, replicas = labels.get(f"{named}product", ""), _replicas(labels, prefix)
    # The site's word for a product goes first; a GPU of another compute capability is none.
    names, products = (label, _taken_apart(label)[0]), hardware.products
    told = next((products[name] for name in names if name in products), None)
    gpu = known_gpu(told) if told else next(filter(None, map(known_gpu, names)), None)
    capability = (count(labels, f"{GPU}compute.major"), count(labels, f"{GPU}compute.minor"))
    if told is None and gpu and None not in capability and capability != gpu.compute_capability:
        gpu = None
    slice_ = _PROFILE.fullmatch(profile or "")
    if memory := count(labels, f"{prefix}memory"):
        # MPS gives each replica its part; under time slicing all of them see the whole.
        mps = labels.get(f"{prefix}sharing-strategy") == "mps"
        memory = memory * MIB // (replicas if mps else 1)
    else:
        memory = None if slice_ is None else int(slice_[3]) * 2**30
    share = 1.0 if slice_ is None else _share(labels, prefix, slice_, gpu)
    kind = GpuType(label, gpu, devices, memory, profile, share, replicas, f"{named}product")
    return _same(kind)


# Equal types are one object, so that readers may tell thousands of them by identity.
_same: Callable[[GpuType], GpuType] = lru_cache(maxsize=1024)(lambda kind: kind)


def _replicas(labels: Mapping[str, str], prefix: str) -> int:
    """How many pods share a device."""
    return max(1, count(labels, f"{prefix}replicas") or 1)


def _share(labels: Mapping[str, str], prefix: str, slice_: re.Match[str], gpu: Gpu | None) -> float:
    """A slice's part of a GPU's multiprocessors: as counted in a label, else by its profile.

    A GPU that the table does not know counts as one slice: its time is that of the whole GPU.
    """
    if gpu is None:
        return 1.0
    if counted := count(labels, f"{prefix}multiprocessors"):
        return min(1.0, counted / gpu.sms)
    slices = shipped_yaml("mig.yaml", __file__)["compute_slices"].get(gpu.name.partition("-")[0])
    return 1.0 if slices is None else min(1.0, max(1, int(slice_[1] or slice_[2])) / slices)


def _taken_apart(label: str) -> tuple[str, str | None]:
    """The GPU and the profile of its slices in a label: ``A100-SXM4-40GB-MIG-1g.5gb-SHARED``."""
    name = label.removesuffix(SHARED)
    match = _PRODUCT.fullmatch(name)
    return (match[1], match[2]) if match and _PROFILE.fullmatch(match[2]) else (name, None)


# Of the time until the table counts as stale, what may pass in silence before we ask again.
PATIENCE = 0.5


class NodeWatch(ObjectWatch):
    """Keeps ``table`` equal to the cluster's nodes.

    While the API server is away the last table stays; ``stale`` tells when it has not been heard
    of for ``nodes.stale_s``. Needs the verbs list and watch on nodes.
    """

    def __init__(self, client: api.ApiClient, config: Config, **options: Any) -> None:
        super().__init__(api.CoreV1Api(client).list_node, self._all, self._one, **options)
        # It never changes, the next one takes its place.
        self.table: Mapping[str, GpuNode] = MappingProxyType({})
        self.use(config)

    @property
    def age_s(self) -> float:
        """Seconds since the last word of the API server, or since the start."""
        return time.monotonic() - self.heard_s

    @property
    def stale(self) -> bool:
        """True where the table may lag behind the cluster by more than ``nodes.stale_s``."""
        return not self.synced.is_set() or self.age_s > self._config.nodes.stale_s

    def use(self, config: Config) -> None:
        """Read labels by a configuration: the nodes are listed anew."""
        self._config = config
        self.silent_s = PATIENCE * config.nodes.stale_s
        self.resync_s = config.nodes.resync_s
        self.list_anew()

    def _all(self, found: Iterator[KubeObject]) -> None:
        nodes = map(self._kept, _nodes(found, self._config))
        self.table = MappingProxyType({node.name: node for node in nodes})

    def _one(self, found: KubeObject, deleted_s: float | None) -> None:
        node, known = self._kept(gpu_node(found, self._config.hardware)), self.table
        if deleted_s is not None:
            self.table = MappingProxyType({n: one for n, one in known.items() if n != node.name})
        elif node is not known.get(node.name):
            self.table = MappingProxyType({**known, node.name: node})

    def _kept(self, node: GpuNode) -> GpuNode:
        """What did not change stays the same object."""
        old = self.table.get(node.name)
        return old if old == node else node


def listed_nodes(client: api.ApiClient, config: Config, page: int = PAGE) -> Mapping[str, GpuNode]:
    """The nodes of this moment; raises ClusterError."""
    found = objects(api.CoreV1Api(client).list_node, page)
    return {node.name: node for node in _nodes(found, config)}


def _nodes(found: Iterator[KubeObject], config: Config) -> Iterator[GpuNode]:
    return (gpu_node(n, config.hardware) for n in found if text(n, "metadata", "name"))
