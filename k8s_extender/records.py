"""Nodes and jobs as the decisions see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from predictor.identify.stated import Stated
from profiles.gpus import Gpu

from .plain import items, mapping, text


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
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with its labels; ``type`` is None for a node without GPUs.

    ``slices`` are the slices under the MIG strategy ``mixed``, by the resource that counts them.
    ``takes_pods`` is False while it is cordoned or not ready.
    """

    name: str
    type: GpuType | None
    labels: Mapping[str, str] = field(default_factory=dict)
    slices: Mapping[str, GpuType] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    takes_pods: bool = True

    def type_for(self, resource: str) -> GpuType | None:
        """What a pod that asks for a resource gets here; None where nothing is known of it."""
        return self.slices.get(resource) if "/mig-" in resource else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class PodJob:
    """A training job as one of its pods tells it: the same for all pods that are alike.

    ``gpus_per_pod`` and ``pods`` give the GPUs of the whole job; ``deadline_s`` is the time the
    job may run in seconds, None where it states none, ``wish_s`` what the user's annotation says
    of it, and ``hard`` that a node which is too slow for it is of no use. ``gpu_memory_bytes`` is
    what the user says each GPU must have. ``node_selector``, ``node_affinity`` (the required terms
    of the API, plain JSON) and ``tolerations`` tell which nodes it may land on. ``gpu_fraction``
    is the part of each GPU that a scheduler of shared GPUs gives it. ``claimed`` GPUs are those of
    resource claims, whose number a pod does not tell.
    """

    stated: Stated
    gpus_per_pod: int
    pods: int = 1
    deadline_s: float | None = None
    wish_s: float | None = None
    hard: bool = False
    gpu_memory_bytes: int | None = None
    resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: object = None
    tolerations: Sequence[Mapping[str, Any]] = ()
    scheduling_policy: str | None = None
    gpu_fraction: float = 1.0
    claimed: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.gpus_per_pod * self.pods

    @property
    def annotated(self) -> bool:
        """Whether annotations state something of the training: no other pod is ever refused."""
        return "annotation" in self.stated.origins.values() or bool(
            self.gpu_memory_bytes or self.hard
        )


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node cannot take a job: one of a few constant texts, as the scheduler counts them.

    Preempting other pods would not change any of them.
    """

    text: str


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Nodes that pass, in the order asked, and by name why the others are refused."""

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


# The API server takes no longer names.
MAX_LENGTH = 253


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod's uid, namespace and name; empty where it has none that the API server would take.

    Events may be about other kinds: what makes pods has a name before they do.
    """

    uid: str
    namespace: str
    name: str
    kind: str = "Pod"
    api_version: str = "v1"


def pod_name(pod: Mapping[str, Any]) -> PodName:
    """Who a pod is; what is of a wrong type, or too long, counts as absent."""
    metadata = mapping(pod, "metadata")
    name = _short(metadata, "name") or _short(metadata, "generateName")
    return PodName(_short(metadata, "uid"), _short(metadata, "namespace"), name)


def owner_of(obj: Mapping[str, Any]) -> PodName:
    """The controller of an object; its kind is empty where it has none."""
    metadata = mapping(obj, "metadata")
    owners = items(metadata, "ownerReferences")
    owner = next((one for one in owners if mapping(one).get("controller") is True), None)
    uid, name, kind, version = (text(owner, k) for k in ("uid", "name", "kind", "apiVersion"))
    return PodName(uid, text(metadata, "namespace"), name, kind, version)


def _short(metadata: Mapping[str, Any], key: str) -> str:
    found = text(metadata, key)
    return found if len(found) <= MAX_LENGTH else ""
