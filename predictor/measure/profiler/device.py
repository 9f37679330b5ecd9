"""The device to measure: how to time on it, what it is called, its formats, and its data sheet.

A sheet is an entry of ``gpus.yaml`` under the name of the device: the known one, or one of what the
device says and was seen to do.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any

import torch
import yaml

from profiles import roots
from profiles.gpus import CPU_PREFIX, Gpu, known_gpu, spelling
from profiles.storage import HERE

from ...errors import ProfilerError
from . import nvml
from .nvml import Sensors
from .timing import CpuTimer, CudaTimer, Pace, Timer

CPU, CUDA = "cpu", "cuda"
# Peaks of a sheet, any of which says that a device has a format.
_FORMATS = {
    "fp32": ("fp32",),
    "tf32": ("tf32",),
    "fp16": ("fp16", "fp16_tensor"),
    "bf16": ("bf16_tensor",),
    "fp8": ("fp8_tensor",),
}
CPUINFO = Path("/proc/cpuinfo")
CPU0 = Path("/sys/devices/system/cpu/cpu0")
# Words of a model name that tell nothing apart.
_NOISE = re.compile(r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|@.*", re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
GIB, MIB = 2**30, 2**20
# First compute capability of each generation of tensor cores (Volta, Turing, Ampere, Ada and
# Hopper, Blackwell).
_FIRST_OF_GENERATION = ((7, 0), (7, 5), (8, 0), (8, 9), (10, 0))
TERA = 1e12
# A GPU that others use for more than this share of a second, for so long, is not measured; what
# ran before on this machine, or the driver's start, may still be seen for a second or two.
BUSY, PATIENCE_S = 0.2, 20.0
# A peak is the best of this many samples, and of all that fit in so many seconds.
FEWEST, SAMPLED_S = 5, 0.05
# A product or a copy this long has reached its rate; one shorter is doubled.
LONG_ENOUGH = 0.02
SMALLEST, LARGEST = 256, 16384  # side of the matrices
# Bytes copied: too many for the last cache, but a small share of the memory.
CACHES, COPY_SHARE, FEWEST_COPIED = 2, 0.05, 2**28
PIECES, PASSES = 32, 3
# A CPU that multiplies 16-bit numbers no faster than this times FP32 has no engine for them.
FASTER = 1.2


@dataclass(frozen=True, slots=True)
class Sheet:
    """A device by its name in the tables; ``entry`` is None where the shipped sheets have it."""

    device: str
    entry: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device torch can use. ``sensors`` is None for a CPU, ``pace`` for a GPU."""

    torch: torch.device
    sheet: Sheet
    timer: Timer
    sensors: Sensors | None
    library: str
    pace: Pace | None = None


def named(text: str) -> torch.device:
    """The device of ``cpu``, ``cuda`` or ``cuda:N``; raises ProfilerError if it is not here."""
    kind, _, number = text.partition(":")
    if text == CPU:
        return torch.device(CPU)
    if kind != CUDA or not (number.isdigit() or text == CUDA):
        raise ProfilerError(f"invalid device={text!r}; expected cpu, cuda or cuda:N")
    index, count = int(number or 0), torch.cuda.device_count()
    if index >= count:
        raise ProfilerError(f"device={text!r} is not here: torch {torch.__version__} sees {count}")
    return torch.device(CUDA, index)


@contextmanager
def opened(where: torch.device, source: str) -> Iterator[Device]:
    """The device, its sheet measured where none is known; ``source`` is what that sheet says."""
    if where.type == CPU:
        timer = CpuTimer(torch.get_num_threads())
        yield Device(
            torch=where,
            sheet=cpu_sheet(where, timer, source),
            timer=timer,
            sensors=None,
            library=f"torch {torch.__version__}",
        )
        return
    torch.cuda.set_device(where)
    torch.backends.cudnn.benchmark = True  # as training scripts run convolutions
    uuid = getattr(torch.cuda.get_device_properties(where), "uuid", None)
    sensors = nvml.opened(str(uuid) if uuid else None, where.index)
    try:
        _wait_for_quiet(where, sensors)
        cuda_timer = CudaTimer(torch.cuda)
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        yield Device(
            torch=where,
            sheet=gpu_sheet(where, cuda_timer, sensors, source),
            timer=cuda_timer,
            sensors=sensors,
            library=f"torch {torch.__version__}; CUDA {torch.version.cuda}; cuDNN {cudnn}",
        )
    finally:
        sensors.close()


def _wait_for_quiet(where: torch.device, sensors: Sensors) -> None:
    """Wait for the end of what others run on a GPU; raises ProfilerError if there is none."""
    end_s = monotonic() + PATIENCE_S
    while (share := sensors.busy() or 0.0) > BUSY:
        if monotonic() > end_s:
            raise ProfilerError(
                f"device={str(where)!r} is busy {share:.0%} of the time; nothing else may run on it"
            )
        sleep(1)


def wait(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == CUDA:
        torch.cuda.synchronize(device)


def formats(gpu: Gpu) -> tuple[str, ...]:
    """Formats of a device by its sheet."""
    return tuple(
        name for name, keys in _FORMATS.items() if any(key in gpu.peak_flops for key in keys)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """A CPU: its model, clock, last-level cache and the memory beside it."""

    product: str
    slug: str
    boost_clock_mhz: float | None
    last_cache_bytes: int
    memory_bytes: int


def cpu_facts(cpuinfo: Path = CPUINFO, cpu0: Path = CPU0) -> CpuFacts:
    """The facts of the first CPU; 0 bytes of cache where the system does not say.

    It is called by its model in small letters; where a hypervisor hides that, by family, model and
    stepping too.
    """
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    product = fields.get("model name") or platform.processor() or platform.machine()
    name = _NOISE.sub(" ", product)
    if not re.search(r"\d", name):
        name = " ".join((name, *(fields.get(k, "") for k in ("cpu family", "model", "stepping"))))
    clock = cpu0 / "cpufreq" / "cpuinfo_max_freq"
    caches = [(0, 0)]
    for index in (cpu0 / "cache").glob("index*"):
        size = (index / "size").read_text().strip()
        size_bytes = int(size.rstrip("KMG")) * _UNITS.get(size[-1], 1)
        caches.append((int((index / "level").read_text()), size_bytes))
    return CpuFacts(
        product=product,
        slug=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        boost_clock_mhz=float(clock.read_text()) / 1000 if clock.exists() else None,
        last_cache_bytes=max(caches)[1],
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


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
        "peak_tflops": {k: _rounded(v) for k, v in cpu_peaks(device, timer).items()},
        "source": source,
    }
    if facts.boost_clock_mhz:
        entry["boost_clock_mhz"] = facts.boost_clock_mhz
    return Sheet(name, entry)


def gpu_sheet(device: torch.device, timer: Timer, sensors: Sensors, source: str) -> Sheet:
    """The GPU by the name the driver gives it; measured where no sheet has that name."""
    product = torch.cuda.get_device_name(device)
    if (gpu := known_gpu(product)) is not None:
        return _known(gpu.name) or Sheet(gpu.name, None)
    facts = torch.cuda.get_device_properties(device)
    capability = (facts.major, facts.minor)
    cache = getattr(facts, "L2_cache_size", 0)
    bandwidth = copy_gb_per_s(device, timer, facts.total_memory, cache)
    peaks = gpu_peaks(device, timer, capability)
    entry = {
        "product": product,
        "architecture": f"sm{facts.major}{facts.minor}",
        "compute_capability": f"{facts.major}.{facts.minor}",
        "tensor_core_generation": sum(capability >= first for first in _FIRST_OF_GENERATION),
        "sms": facts.multi_processor_count,
        "boost_clock_mhz": sensors.boost_clock_mhz(),
        "memory_gib": _rounded(facts.total_memory / GIB),
        "bandwidth_gb_per_s": _rounded(bandwidth),
        "l2_mib": cache / MIB,
        "nvlink_gb_per_s": sensors.nvlink_gb_per_s(),
        "pcie_gb_per_s": sensors.pcie_gb_per_s(),
        "tdp_w": sensors.tdp_w(),
        "peak_tflops": {k: _rounded(v) for k, v in peaks.items()},
        "source": source,
    }
    memory = round(facts.total_memory / GIB)
    return Sheet(f"{spelling(product)}-{memory}gb", entry)


def _known(name: str) -> Sheet | None:
    """The sheet of a device as it stands in one of the directories, None in none of them."""
    for root in roots.roots():
        path = root / "gpus.yaml"
        entries = yaml.load(path.read_bytes(), yaml.CSafeLoader) if path.exists() else {}
        if name in (entries or {}):
            return Sheet(name, None if root == HERE else entries[name])
    return None


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


@contextmanager
def tf32(wanted: bool) -> Iterator[None]:
    """Let products and convolutions use TF32 or not, and put it back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def cpu_peaks(device: torch.device, timer: Timer) -> dict[str, float]:
    """TFLOP/s by the keys of a sheet; a 16-bit format stands there where it is faster."""
    fp32 = _product_tflops(device, timer, torch.float32)
    found = {"fp32": fp32}
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        tflops = _product_tflops(device, timer, dtype)
        if tflops > FASTER * fp32:
            found[f"{name}_tensor"] = tflops
    return found


def gpu_peaks(device: torch.device, timer: Timer, capability: tuple[int, int]) -> dict[str, float]:
    """TFLOP/s by the keys of a sheet, of the formats that a compute capability has."""
    with tf32(False):
        found = {"fp32": _product_tflops(device, timer, torch.float32)}
    if capability >= (7, 0):
        found["fp16_tensor"] = _product_tflops(device, timer, torch.float16)
    if capability >= (8, 0):
        with tf32(True):
            found["tf32"] = _product_tflops(device, timer, torch.float32)
        found["bf16_tensor"] = _product_tflops(device, timer, torch.bfloat16)
    return found


def copy_gb_per_s(device: torch.device, timer: Timer, memory: int, cache: int) -> float:
    """GB/s of a copy, each byte read once and written once: the median of undisturbed samples.

    A CPU copies piece after piece, so that others on the machine do not come into every sample.
    """
    pieces = PIECES if device.type == "cpu" else 1
    each = int(min(max(CACHES * cache, FEWEST_COPIED), COPY_SHARE * memory)) // pieces
    source = torch.zeros(pieces, each, dtype=torch.uint8, device=device)
    runs = [partial(to.copy_, part) for to, part in zip(source.clone(), source, strict=True)]
    samples = [timer.sample(run, 1) for _ in range(PASSES) for run in runs]
    quiet = [sample.seconds for sample in samples if not sample.disturbed]
    return 2 * each / median(quiet or [sample.seconds for sample in samples]) / 1e9


def _product_tflops(device: torch.device, timer: Timer, dtype: torch.dtype) -> float:
    side, best = SMALLEST, 0.0
    while True:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        run = partial(torch.matmul, a, b)
        run()
        samples: list[float] = []
        while len(samples) < FEWEST or sum(samples) < SAMPLED_S:
            samples.append(timer.sample(run, 1).seconds)
        seconds = min(samples)
        best = max(best, 2 * side**3 / seconds / TERA)
        if seconds > LONG_ENOUGH or side >= LARGEST:
            return best
        side *= 2
