"""The data sheet of the device: the known one, or one of what it says and what it was seen to do.

A sheet is an entry of ``gpus.yaml`` under the name of the device.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from profiles import roots
from profiles.errors import UnknownGpuError
from profiles.gpus import CPU, CPU_PREFIX, find_gpu, spelling
from profiles.storage import HERE

from .nvml import Sensors
from .peaks import copy_gb_per_s, cpu_peaks, gpu_peaks
from .timing import Timer

CPUINFO = Path("/proc/cpuinfo")
CPU0 = Path("/sys/devices/system/cpu/cpu0")
# Words of a model name that tell nothing apart.
_NOISE = re.compile(r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|@.*", re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
GIB, MIB = 2**30, 2**20
# First compute capability of each generation of tensor cores (Volta, Turing, Ampere, Ada and
# Hopper, Blackwell).
_FIRST_OF_GENERATION = ((7, 0), (7, 5), (8, 0), (8, 9), (10, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """A CPU: its model, clock, last-level cache and the memory beside it."""

    product: str
    slug: str
    boost_clock_mhz: float | None
    last_cache_bytes: int
    memory_bytes: int


def cpu_facts(cpuinfo: Path = CPUINFO, cpu0: Path = CPU0) -> CpuFacts:
    """The facts of the first CPU; 0 bytes of cache where the system does not say."""
    fields = _fields(cpuinfo)
    product = fields.get("model name") or platform.processor() or platform.machine()
    return CpuFacts(
        product=product,
        slug=_slug(product, fields),
        boost_clock_mhz=_boost_clock_mhz(cpu0 / "cpufreq" / "cpuinfo_max_freq"),
        last_cache_bytes=_last_cache_bytes(cpu0 / "cache"),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _fields(cpuinfo: Path) -> dict[str, str]:
    """The entries of the first processor."""
    if not cpuinfo.exists():
        return {}
    first = cpuinfo.read_text(encoding="utf-8").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _slug(product: str, fields: dict[str, str]) -> str:
    """The model in small letters; where a hypervisor hides it, family, model and stepping too."""
    name = _NOISE.sub(" ", product)
    if not re.search(r"\d", name):
        name = " ".join((name, *(fields.get(k, "") for k in ("cpu family", "model", "stepping"))))
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _boost_clock_mhz(path: Path) -> float | None:
    return float(path.read_text()) / 1000 if path.exists() else None


def _last_cache_bytes(folder: Path) -> int:
    sizes = [
        (int((index / "level").read_text()), _bytes((index / "size").read_text()))
        for index in folder.glob("index*")
    ]
    return max(sizes)[1] if sizes else 0


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMG]?)\s*", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS.get(unit, 1)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A device by its name in the tables; ``entry`` is None where the shipped sheets have it."""

    device: str
    entry: Mapping[str, Any] | None


def cpu_sheet(device: torch.device, timer: Timer, source: str) -> Sheet:
    """The CPU with the threads torch uses; measured unless an added directory has it."""
    facts, threads = cpu_facts(), torch.get_num_threads()
    name = f"{CPU_PREFIX}{facts.slug}-{threads}t"
    known = _known(name)
    if known is not None:
        return known
    bandwidth = copy_gb_per_s(device, timer, facts.memory_bytes, facts.last_cache_bytes)
    entry = {
        "kind": CPU,
        "product": f"{facts.product}, {threads} threads",
        "architecture": "cpu",
        "sms": threads,
        "memory_gib": _rounded(facts.memory_bytes / GIB),
        "bandwidth_gb_per_s": _rounded(bandwidth),
        "l2_mib": facts.last_cache_bytes / MIB,
        "peak_tflops": _all_rounded(cpu_peaks(device, timer)),
        "source": source,
    }
    if facts.boost_clock_mhz:
        entry["boost_clock_mhz"] = facts.boost_clock_mhz
    return Sheet(name, entry)


def gpu_sheet(device: torch.device, timer: Timer, sensors: Sensors, source: str) -> Sheet:
    """The GPU by the name the driver gives it; measured where no sheet has that name."""
    product = torch.cuda.get_device_name(device)
    try:
        name = find_gpu(product).name
    except UnknownGpuError:
        return _new_gpu(device, timer, sensors, product, source)
    return _known(name) or Sheet(name, None)


def _new_gpu(
    device: torch.device, timer: Timer, sensors: Sensors, product: str, source: str
) -> Sheet:
    facts = torch.cuda.get_device_properties(device)
    capability = (facts.major, facts.minor)
    cache = getattr(facts, "L2_cache_size", 0)
    bandwidth = copy_gb_per_s(device, timer, facts.total_memory, cache)
    entry = {
        "product": product,
        "architecture": f"sm{facts.major}{facts.minor}",
        "compute_capability": f"{facts.major}.{facts.minor}",
        "tensor_core_generation": _generation(capability),
        "sms": facts.multi_processor_count,
        "boost_clock_mhz": sensors.boost_clock_mhz(),
        "memory_gib": _rounded(facts.total_memory / GIB),
        "bandwidth_gb_per_s": _rounded(bandwidth),
        "l2_mib": cache / MIB,
        "nvlink_gb_per_s": sensors.nvlink_gb_per_s(),
        "pcie_gb_per_s": sensors.pcie_gb_per_s(),
        "tdp_w": sensors.tdp_w(),
        "peak_tflops": _all_rounded(gpu_peaks(device, timer, capability)),
        "source": source,
    }
    memory = round(facts.total_memory / GIB)
    return Sheet(f"{spelling(product)}-{memory}gb", entry)


def _generation(capability: tuple[int, int]) -> int:
    """Generation of the tensor cores, 0 before Volta."""
    return sum(capability >= first for first in _FIRST_OF_GENERATION)


def _known(name: str) -> Sheet | None:
    """The sheet of a device as it stands in one of the directories, None in none of them."""
    for root in roots.roots():
        path = root / "gpus.yaml"
        entries = yaml.load(path.read_bytes(), yaml.CSafeLoader) if path.exists() else {}
        if name in (entries or {}):
            return Sheet(name, None if root == HERE else entries[name])
    return None


def _all_rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: _rounded(value) for key, value in values.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
