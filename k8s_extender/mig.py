"""Slices of a GPU: the profiles of NVIDIA's Multi-Instance GPU and what part of a GPU each is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from profiles.gpus import Gpu

RESOURCE_PREFIX = "nvidia.com/mig-"
_PROFILE = re.compile(r"(?:(\d)c\.)?(\d)g\.(\d{1,3})gb(?:[.+][a-z0-9.]{1,16})?", re.ASCII)
_PRODUCT = re.compile(r"(.+)-MIG-([0-9a-z.+]{1,32})", re.ASCII)
_SHARED = "-SHARED"


@dataclass(frozen=True, slots=True)
class Product:
    """What ``nvidia.com/gpu.product`` says: the GPU's own name, and the profile of its slices."""

    name: str
    profile: str | None = None


def product_of(label: str) -> Product:
    """A label such as ``A100-SXM4-40GB-MIG-1g.5gb-SHARED``, taken apart."""
    name = label.removesuffix(_SHARED)
    match = _PRODUCT.fullmatch(name)
    if match is not None and _PROFILE.fullmatch(match[2]):
        return Product(match[1], match[2])
    return Product(name)


def profile_of(resource: str) -> str | None:
    """The profile that a resource such as ``nvidia.com/mig-1g.5gb`` counts, or None."""
    profile = resource.removeprefix(RESOURCE_PREFIX)
    return profile if profile != resource and _PROFILE.fullmatch(profile) else None


def share_of(profile: str, gpu: Gpu | None) -> float:
    """The part of a GPU's multiprocessors in a slice, by the slices in its name; at most 1.

    A GPU that the table does not know counts as one slice: its time is that of the whole GPU.
    """
    match = _PROFILE.fullmatch(profile)
    slices = None if gpu is None else _compute_slices().get(gpu.name.partition("-")[0])
    if match is None or slices is None:
        return 1.0
    return min(1.0, max(1, int(match[1] or match[2])) / slices)


def memory_of(profile: str) -> int | None:
    """The bytes that the profile's name promises, or None where it is no profile."""
    match = _PROFILE.fullmatch(profile)
    return None if match is None else int(match[3]) * 2**30


@cache
def _compute_slices() -> Mapping[str, int]:
    raw = yaml.load((Path(__file__).parent / "mig.yaml").read_bytes(), yaml.CSafeLoader)
    found: Mapping[str, int] = raw["compute_slices"]
    return found
