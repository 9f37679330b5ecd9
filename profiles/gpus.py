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
from .roots import roots

GPU, CPU = "gpu", "cpu"
CPU_PREFIX = "cpu-"  # what names of CPUs start with
KINDS = (GPU, CPU)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model, or the CPU of a machine whose own tables were added (``kind`` cpu).

    ``peak_flops`` maps a number format to dense FLOP/s without sparsity: ``fp64``, ``fp32``,
    ``fp16``, ``bf16`` on ordinary cores, and ``tf32``, ``fp16_tensor``, ``bf16_tensor``,
    ``fp8_tensor``, ``fp4_tensor`` on tensor cores (FP32 accumulation). A missing key means the
    hardware cannot, or so slowly that libraries compute in ``fp32`` instead (``fp16`` before GP100
    and on GP10x).
    ``nvlink_bytes_per_s`` is the sum of both directions of all links of one GPU, 0 without
    NVLink; ``pcie_bytes_per_s`` is one direction of the host link. A CPU has the threads used as
    ``sms``, its last-level cache as ``l2_bytes``, and 0 where its sheet states nothing.
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
    kind: str = GPU


# What the sheet of a CPU may leave out.
_NOT_OF_CPUS = {"compute_capability": "0.0", "tensor_core_generation": 0} | dict.fromkeys(
    ("boost_clock_mhz", "nvlink_gb_per_s", "pcie_gb_per_s", "tdp_w"), 0.0
)


def _gpu(name: str, entry: Mapping[str, Any]) -> Gpu:
    kind = entry.get("kind", GPU)
    if kind not in KINDS:
        raise ProfileDataError(f"{name}: kind={kind!r} is not one of {', '.join(KINDS)}")
    raw = dict(_NOT_OF_CPUS, **entry) if kind == CPU else entry
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
        kind=kind,
    )


def gpus() -> Mapping[str, Gpu]:
    """All devices by their own name: the shipped sheets, and those of added directories.

    Raises ProfileDataError where two directories state a device differently.
    """
    return _gpus(roots())


def forget() -> None:
    """Read the sheets again at the next question."""
    for read in (_gpus, _sheets, _index):
        read.cache_clear()


@cache
def _gpus(roots: tuple[Path, ...]) -> Mapping[str, Gpu]:
    found: dict[str, Gpu] = {}
    for root in roots:
        for name, gpu in _sheets(root).items():
            if found.setdefault(name, gpu) != gpu:
                raise ProfileDataError(f"{root / 'gpus.yaml'}: another sheet of {name} is known")
    return found


@cache
def _sheets(root: Path) -> Mapping[str, Gpu]:
    path = root / "gpus.yaml"
    if not path.exists():
        return {}
    raw = yaml.load(path.read_bytes(), yaml.CSafeLoader) or {}
    return {name: _gpu(name, entry) for name, entry in raw.items()}


def spelling(name: str) -> str:
    """The form names are compared in: lower case, ``-`` between words, no ``-SHARED`` suffix."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.strip().lower()).strip("-")
    return words.removesuffix("-shared")


@cache
def _index(roots: tuple[Path, ...]) -> Mapping[str, Gpu]:
    index: dict[str, Gpu] = {}
    for gpu in _gpus(roots).values():
        for name in (gpu.name, gpu.product, *gpu.aliases):
            other = index.setdefault(spelling(name), gpu)
            if other is not gpu:
                raise ProfileDataError(f"gpus.yaml: {name!r} names {other.name} and {gpu.name}")
    return index


def find_gpu(name: str) -> Gpu:
    """The GPU a name or alias means, in any case, with spaces, ``_`` or ``-`` between words.

    Takes slugs of the sources, NVML product names, ``nvidia.com/gpu.product`` labels and Slurm
    GRES types (``a100_80``); raises UnknownGpuError with the nearest names.
    """
    index = _index(roots())
    key = spelling(name)
    for candidate in (key, key.removeprefix("nvidia-"), key.removeprefix("tesla-"), f"{key}gb"):
        if candidate in index:
            return index[candidate]
    near = get_close_matches(key, index, n=8, cutoff=0.5)
    raise UnknownGpuError(name, tuple(dict.fromkeys(index[n].name for n in near))[:4])


def variants(name: str) -> tuple[str, ...]:
    """Other cards that a name such as ``a100`` may mean no less than the one it is taken for."""
    start = f"{spelling(name)}-"
    return tuple(one for one in gpus() if one.startswith(start) and one != find_gpu(name).name)


def known_gpu(name: str) -> Gpu | None:
    """The GPU a name or alias means, None where there is none."""
    try:
        return find_gpu(name)
    except UnknownGpuError:
        return None


def known_name(name: str) -> str:
    """The one name of a GPU for a name or alias; the name of one that nobody knows as it is."""
    gpu = known_gpu(name)
    return name if gpu is None else gpu.name
