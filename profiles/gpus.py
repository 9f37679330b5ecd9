"""GPU data sheets: ``gpus.yaml`` as frozen dataclasses, found by any of the names in use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .errors import ProfileDataError, UnknownGpuError

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model.

    ``peak_flops`` maps a number format to dense FLOP/s without sparsity: ``fp64``, ``fp32``,
    ``fp16``, ``bf16`` on ordinary cores, and ``tf32``, ``fp16_tensor``, ``bf16_tensor``,
    ``fp8_tensor`` on tensor cores (FP32 accumulation). A missing key means the hardware cannot, or
    so slowly that libraries compute in ``fp32`` instead (``fp16`` before GP100 and on GP10x).
    ``nvlink_bytes_per_s`` is the sum of both directions of all links of one GPU, 0 without
    NVLink; ``pcie_bytes_per_s`` is one direction of the host link.
    """

    name: str
    product: str
    architecture: str
    compute_capability: tuple[int, int]
    tensor_core_generation: int
    sms: int
    boost_clock_hz: float
    memory_bytes: int
    bandwidth_bytes_per_s: float
    l2_bytes: int
    nvlink_bytes_per_s: float
    pcie_bytes_per_s: float
    tdp_w: float
    peak_flops: Mapping[str, float]
    aliases: tuple[str, ...]
    source: str


def _gpu(name: str, raw: Mapping[str, Any]) -> Gpu:
    major, minor = str(raw["compute_capability"]).split(".")
    return Gpu(
        name=name,
        product=raw["product"],
        architecture=raw["architecture"],
        compute_capability=(int(major), int(minor)),
        tensor_core_generation=raw["tensor_core_generation"],
        sms=raw["sms"],
        boost_clock_hz=raw["boost_clock_mhz"] * 1e6,
        memory_bytes=int(raw["memory_gib"] * 2**30),
        bandwidth_bytes_per_s=raw["bandwidth_gb_per_s"] * 1e9,
        l2_bytes=int(raw["l2_mib"] * 2**20),
        nvlink_bytes_per_s=raw["nvlink_gb_per_s"] * 1e9,
        pcie_bytes_per_s=raw["pcie_gb_per_s"] * 1e9,
        tdp_w=raw["tdp_w"],
        peak_flops={k: v * 1e12 for k, v in raw["peak_tflops"].items()},
        aliases=tuple(raw.get("aliases", ())),
        source=raw["source"],
    )


@cache
def gpus() -> Mapping[str, Gpu]:
    """All GPUs by their own name."""
    raw = yaml.load((HERE / "gpus.yaml").read_bytes(), yaml.CSafeLoader)
    return {name: _gpu(name, entry) for name, entry in raw.items()}


def spelling(name: str) -> str:
    """The form names are compared in: lower case, ``-`` between words, no ``-SHARED`` suffix."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.strip().lower()).strip("-")
    return words.removesuffix("-shared")


@cache
def _index() -> Mapping[str, Gpu]:
    index: dict[str, Gpu] = {}
    for gpu in gpus().values():
        for name in (gpu.name, gpu.product, *gpu.aliases):
            other = index.setdefault(spelling(name), gpu)
            if other is not gpu:
                raise ProfileDataError(f"gpus.yaml: {name!r} names {other.name} and {gpu.name}")
    return index


def find_gpu(name: str) -> Gpu:
    """The GPU a name or alias means, in any case, with spaces, ``_`` or ``-`` between words.

    Takes slugs of the sources, NVML product names, ``nvidia.com/gpu.product`` labels and Slurm
    GRES types; raises UnknownGpuError with the nearest names.
    """
    index = _index()
    key = spelling(name)
    for candidate in (key, key.removeprefix("nvidia-"), key.removeprefix("tesla-")):
        if candidate in index:
            return index[candidate]
    near = get_close_matches(key, index, n=8, cutoff=0.5)
    raise UnknownGpuError(name, tuple(dict.fromkeys(index[n].name for n in near))[:4])
