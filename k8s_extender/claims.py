"""Dynamic resource allocation: slices tell the GPUs of nodes, claims list them best first.

A claim made from a template may list what would do (``firstAvailable``); the scheduler prefers what
stands first. Only at its creation can the list be put in order. What a selector in CEL chooses is
known where it compares product, architecture, type, driver or memory, joined by ``&&``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import orjson
from kubernetes import client as api
from kubernetes.utils.quantity import parse_quantity

from profiles.gpus import known_gpu

from .admission.review import AdmissionRequest
from .config import Config
from .decide import Decider
from .nodes import GpuNode, GpuType
from .plain import count, items, mapping, owner_of, text
from .pods import DEVICE_CLASS
from .watching import FAILURES, KubeObject, ObjectWatch, WatchGroup, body_of
from .workload import PodJob

DRIVER = "gpu.nvidia.com"
_quantity: Any = parse_quantity
POD_S = 0.5  # the API server gives us a second in all
_DEVICE = r"device\.(?:attributes|capacity)\[['\"]gpu\.nvidia\.com['\"]\]\."
_TEXT = re.compile(
    rf"(?:device\.(driver)|{_DEVICE}(\w+))(\.lowerAscii\(\))?"
    r"(?:\s*==\s*|\.(contains|startsWith)\()['\"]([^'\"]*)['\"]\)?"
)
_MEMORY = re.compile(
    _DEVICE + r"memory\.(?:compareTo\(quantity\('(\w+)'\)\)\s*(>=|>)\s*0"
    r"|(isGreaterThan)\(quantity\('(\w+)'\)\))"
)


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """What selectors look at of a GPU, and the type that it makes of its node."""

    words: Mapping[str, str]
    type: GpuType


class Devices(WatchGroup):
    """Watches ResourceSlices and DeviceClasses: ``types`` of nodes by name, and what claims choose.

    Needs the verbs list and watch on both, of resource.k8s.io/v1.
    """

    def __init__(self, client: api.ApiClient, config: Config, **options: Any) -> None:
        self._products = config.hardware.products
        self._slices: dict[str, tuple[str, list[ClaimDevice]]] = {}
        self._classes: dict[str, KubeObject] = {}
        self.types: Mapping[str, GpuType] = {}
        self._core: Any = api.CoreV1Api(client)
        listed = api.CustomObjectsApi(client).list_cluster_custom_object
        slices = partial(listed, "resource.k8s.io", "v1", "resourceslices")
        classes = partial(listed, "resource.k8s.io", "v1", "deviceclasses")
        self._watches = [
            ObjectWatch(slices, self._all_slices, self.slice, **options),
            ObjectWatch(classes, self._all_classes, self.device_class, **options),
        ]

    def slice(self, found: KubeObject, deleted_s: float | None = None) -> None:
        """Take note of a ResourceSlice."""
        name, node = text(found, "metadata", "name"), text(found, "spec", "nodeName")
        self._slices.pop(name, None)
        if deleted_s is None and text(found, "spec", "driver") == DRIVER and node:
            self._slices[name] = (node, list(_devices(found, self._products)))
        self._count()

    def _count(self) -> None:
        counts: dict[str, Counter[GpuType]] = {}
        for node, devices in self._slices.values():
            counts.setdefault(node, Counter()).update(one.type for one in devices)
        self.types = {
            node: replace(kind, count=number)
            for node, kinds in counts.items()
            for kind, number in kinds.most_common(1)
        }

    def device_class(self, found: KubeObject, deleted_s: float | None = None) -> None:
        """Take note of a DeviceClass."""
        name = text(found, "metadata", "name")
        others = {n: c for n, c in self._classes.items() if n != name}
        self._classes = others if deleted_s is not None else {**others, name: found}
        self.types = dict(self.types)  # what they are called has changed

    def named(self) -> Mapping[str, frozenset[GpuType] | None]:
        """The types that resources stand for which name a class, the newest; see `chosen`."""
        born = [(text(c, "metadata", "creationTimestamp"), n, c) for n, c in self._classes.items()]
        return {
            resource: self.chosen({"deviceClassName": name})
            for _, name, found in sorted(born, key=itemgetter(0))
            for resource in (DEVICE_CLASS + name, text(found, "spec", "extendedResourceName"))
        }

    def chosen(self, request: Mapping[str, Any]) -> frozenset[GpuType] | None:
        """The types of the devices that a request may get; None where its words are not read."""
        named = self._classes.get(text(request, "deviceClassName"))
        if named is None:
            return None
        selectors = [*items(named, "spec", "selectors"), *items(request, "selectors")]
        words = [text(selector, "cel", "expression") for selector in selectors]
        devices = [one for _, held in [*self._slices.values()] for one in held]
        for part in (part.strip() for expression in words for part in expression.split("&&")):
            kept = [(one, _holds(part, one)) for one in devices]
            if None in (held for _, held in kept):
                return None
            devices = [one for one, held in kept if held]
        return frozenset(one.type for one in devices)

    def claimed_by(self, request: AdmissionRequest) -> KubeObject:
        """The pod that a claim was made for, asked of the API server; empty where there is none."""
        owner = owner_of(request.object)
        if owner.kind != "Pod" or not owner.name:
            return {}
        options = {"_preload_content": False, "_request_timeout": POD_S}
        try:
            found = self._core.read_namespaced_pod(owner.name, owner.namespace, **options)
            pod: KubeObject = orjson.loads(body_of(found))
        except (*FAILURES, ValueError):
            return {}
        return pod

    def in_order(
        self, pod: KubeObject, claim: AdmissionRequest, known: Decider
    ) -> list[dict[str, Any]]:
        """A JSON patch that puts the lists of a pod's claim in order; empty where they are."""
        job, patch = known.job_of(pod), []
        requests = items(claim.object, "spec", "devices", "requests")
        for i, request in enumerate(requests if job is not None else ()):
            listed = items(request, "firstAvailable")
            worth = [_worth(one, self.chosen(one), job, known) for one in listed]
            if None in worth:
                continue
            ordered = sorted(range(len(listed)), key=worth.__getitem__, reverse=True)
            if ordered != list(range(len(listed))):
                path = f"/spec/devices/requests/{i}/firstAvailable"
                value = [listed[place] for place in ordered]
                patch.append({"op": "replace", "path": path, "value": value})
        return patch

    def _all_slices(self, found: Iterator[KubeObject]) -> None:
        self._slices.clear()
        self._count()  # there may be none any more
        for one in found:
            self.slice(one)

    def _all_classes(self, found: Iterator[KubeObject]) -> None:
        self._classes = {text(one, "metadata", "name"): one for one in found}


def with_devices(nodes: Mapping[str, GpuNode], devices: Devices) -> Mapping[str, GpuNode]:
    """The nodes, those whose labels tell no GPU with that of their slices, by any name it has."""
    types, named = devices.types, devices.named()
    found = dict(nodes)
    for name in (n for n in types.keys() & nodes.keys() if nodes[n].type is None):
        kind = types[name]
        held = {r: kind for r, got in named.items() if got is None or replace(kind, count=1) in got}
        slices = {**nodes[name].slices, **dict.fromkeys(named), **held}
        found[name] = replace(nodes[name], type=kind, slices=slices)
    return found


def _worth(
    request: Any, kinds: frozenset[GpuType] | None, job: PodJob | None, known: Decider
) -> Any:
    """Whether a job runs on what a request gets, and its samples per second; None if not known."""
    number = count(request, "count") or 1
    if job is None or not kinds or text(request, "allocationMode") not in ("", "ExactCount"):
        return None
    sized = replace(job, gpus_per_pod=number, claimed=False)
    able, found = known.able(sized, kinds), known.estimates(sized, kinds)
    rates = [e.prediction.throughput for e in found if e.prediction is not None]
    return (able == kinds, min(rates)) if len(rates) == len(kinds) else None


def _devices(found: KubeObject, products: Mapping[str, str]) -> Iterator[ClaimDevice]:
    for raw in items(found, "spec", "devices"):
        attributes = mapping(raw, "attributes")
        words = {name: text(value, "string") for name, value in attributes.items()}
        product = words.get("productName", "")
        if words.get("type") != "gpu" or not product:
            continue
        label = "-".join(product.split())
        memory = _bytes(text(raw, "capacity", "memory", "value"))
        gpu = known_gpu(products.get(label, label))
        yield ClaimDevice(words | {"driver": DRIVER}, GpuType(label, gpu, 1, memory or None))


def _holds(part: str, device: ClaimDevice) -> bool | None:
    """Whether a device meets one comparison; None for one that is not read."""
    if memory := _MEMORY.fullmatch(part):
        excess = (device.type.memory_bytes or 0) - _bytes(memory[1] or memory[4])
        return excess >= 0 if memory[2] == ">=" else excess > 0
    match = _TEXT.fullmatch(part)
    held = None if match is None else device.words.get(match[1] or match[2])
    if match is None or held is None:
        return None
    held = held.lower() if match[3] else held
    compare = {"contains": held.__contains__, "startsWith": held.startswith}
    return compare.get(match[4], held.__eq__)(match[5])


def _bytes(quantity: str) -> int:
    try:
        return int(_quantity(quantity))
    except ValueError:
        return 0
