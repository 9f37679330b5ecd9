"""The device to measure: how to time on it, what it is called, which formats it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from profiles.gpus import Gpu

from ...errors import ProfilerError
from . import nvml
from .nvml import Sensors
from .sheets import Sheet, cpu_sheet, gpu_sheet
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
    sensors = nvml.opened(f"GPU-{uuid}" if uuid else None, where.index)
    try:
        cuda_timer = CudaTimer(torch.cuda)
        yield Device(
            torch=where,
            sheet=gpu_sheet(where, cuda_timer, sensors, source),
            timer=cuda_timer,
            sensors=sensors,
            library=cuda_library(),
        )
    finally:
        sensors.close()


def cuda_library() -> str:
    """Versions of torch and of the libraries its kernels come from."""
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return f"torch {torch.__version__}; CUDA {torch.version.cuda}; cuDNN {cudnn}"


def formats(gpu: Gpu) -> tuple[str, ...]:
    """Formats of a device by its sheet."""
    return tuple(
        name for name, keys in _FORMATS.items() if any(key in gpu.peak_flops for key in keys)
    )
