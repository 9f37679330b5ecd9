"""How many GPUs a pod asks for, counted as the scheduler counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .node_labels import RESOURCE_PREFIX
from .plain import MOST, at, count, items, mapping, text

MAX_GPUS = 1024
# A container may ask for devices of a class by this name, as for any resource.
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
# Annotations of KAI-Scheduler: its pods ask for no resource.
KAI_FRACTION = "gpu-fraction"
KAI_DEVICES = "gpu-fraction-num-devices"
# Whole quantities as the API server keeps them; it writes the others as plain digits.
_QUANTITY = re.compile(r"\+?(\d{1,10})(?:(k|Ki)|[eE]\+?(\d{1,2}))?", re.ASCII)
_SUFFIXES = {"k": 1000, "Ki": 1024}
_FRACTION = re.compile(r"0?\.\d{1,6}|1(?:\.0{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PodGpus:
    """GPUs of one pod: ``resource`` counts them, ``fraction`` is the part of each that it gets.

    ``claimed`` where they are resource claims, of which a pod tells only the names: one GPU each is
    then no more than a guess.
    """

    resource: str
    gpus: int
    fraction: float = 1.0
    claimed: bool = False


def asked_of(
    spec: Mapping[str, Any], annotations: Mapping[str, str], resources: Iterable[str]
) -> PodGpus | None:
    """What a pod asks for; None for a pod without GPUs.

    Containers and sidecars (init containers that restart always) add up; other init containers run
    one at a time, each beside the sidecars before it. Of several resources the largest counts.
    """
    names = (*resources, *_slices(spec))
    totals = {name: _total(spec, name) for name in dict.fromkeys(names)}
    most = max(totals, key=totals.__getitem__, default=None)
    if most is not None and 0 < totals[most] <= MAX_GPUS:
        return PodGpus(most, totals[most])
    resource = next(iter(totals), "nvidia.com/gpu")
    if claims := len(items(spec, "resourceClaims")):
        return PodGpus(resource, min(claims, MAX_GPUS), claimed=True)
    return _fractions(annotations, resource)


def containers_with(spec: Mapping[str, Any], resource: str) -> list[Mapping[str, Any]]:
    """The containers that ask for the resource, most first; all of them where none does."""
    containers = [c for c in items(spec, "containers") if isinstance(c, Mapping)]
    asking = [c for c in containers if _of(c, resource)]
    return sorted(asking, key=lambda c: -_of(c, resource)) or containers


def _total(spec: Mapping[str, Any], resource: str) -> int:
    beside, most = 0, 0
    for container in items(spec, "initContainers"):
        wanted = _of(container, resource)
        if text(container, "restartPolicy") == "Always":
            beside += wanted
        else:
            most = max(most, beside + wanted)
    return max(most, beside + sum(_of(c, resource) for c in items(spec, "containers")))


def _of(container: Any, resource: str) -> int:
    """Requests, or limits where there is no request: of GPUs both are equal."""
    asked = (at(container, "resources", part, resource) for part in ("requests", "limits"))
    return next((found for found in map(_whole, asked) if found is not None), 0)


def _whole(quantity: Any) -> int | None:
    """A number of GPUs: a user may write ``2e0``, and the API server leaves it so."""
    match = _QUANTITY.fullmatch(quantity) if isinstance(quantity, str) else None
    if match is None:
        return count(quantity)
    digits, suffix, exponent = match.groups()
    found = int(digits) * _SUFFIXES.get(suffix, 1) * 10 ** int(exponent or 0)
    return found if found <= MOST else None


def _slices(spec: Mapping[str, Any]) -> list[str]:
    """Resources of MIG slices and device classes that any container names."""
    containers = (*items(spec, "containers"), *items(spec, "initContainers"))
    parts = (mapping(c, "resources", part) for c in containers for part in ("requests", "limits"))
    named = {key for part in parts for key in part if isinstance(key, str)}
    return sorted(key for key in named if key.startswith((RESOURCE_PREFIX, DEVICE_CLASS)))


def _fractions(annotations: Mapping[str, str], resource: str) -> PodGpus | None:
    fraction = annotations.get(KAI_FRACTION, "")
    devices = count(annotations, KAI_DEVICES) or 1
    if not _FRACTION.fullmatch(fraction) or not float(fraction) or devices > MAX_GPUS:
        return None
    return PodGpus(resource, devices, float(fraction))
