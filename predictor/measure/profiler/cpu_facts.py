"""What the operating system says of this machine's CPU."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CPU0 = Path("/sys/devices/system/cpu/cpu0")
# Words of a model name that tell nothing apart.
_NOISE = re.compile(r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|@.*", re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


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
