"""GPUs as public records show them, behind the functions of NVML and torch that we call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
import yaml

from predictor.measure.profiler import session
from predictor.measure.profiler.device import Device, Sheet
from predictor.measure.profiler.nvml import Sensors
from predictor.measure.profiler.timing import CpuTimer
from predictor.measure.profiler.verify import compare, steps

RECORDS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "live/profiler/data/recorded_gpus.yaml").read_text()
)


class RecordedNvml:
    """The module pynvml on a machine with one recorded GPU; null is what NVML refuses.

    ``changes`` are later answers of a field, the last of them for ever. A part of a GPU (MIG) is
    found by the name that ``uuid`` gives.
    """

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, record: Mapping[str, Any], **changes: list[Any]) -> None:
        self._record, self._changes = dict(record), changes
        self.asked_for: list[str] = []

    def field(self, name: str, scale: float = 1) -> Any:
        """An answer in the unit of NVML; raises its error where the record has none."""
        value = self._record.get(name)
        if self._changes.get(name):
            left = self._changes[name]
            value = left.pop(0) if len(left) > 1 else left[0]
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return round(scale * value) if isinstance(value, int | float) else value

    def __getattr__(self, name: str) -> Callable[..., Any]:
        assert hasattr(pynvml, name), f"pynvml has no {name}"
        found: Callable[..., Any] = self._functions()[name]
        return found

    def _functions(self) -> Mapping[str, Callable[..., Any]]:
        field = self.field
        clocks = {self.NVML_CLOCK_SM: "sm_mhz", self.NVML_CLOCK_MEM: "memory_mhz"}
        return {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: self._record["driver"],
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetHandleByIndex": str,
            "nvmlDeviceGetClockInfo": lambda _, kind: field(clocks[kind]),
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: field("most_mhz"),
            "nvmlDeviceGetPowerUsage": lambda _: field("watts", 1000),
            "nvmlDeviceGetPowerManagementLimit": lambda _: field("limit_watts", 1000),
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: field("default_watts", 1000),
            "nvmlDeviceGetTemperature": lambda _, sensor: field("celsius"),
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=field("percent_busy")),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: field("reasons"),
            "nvmlDeviceGetEccMode": lambda _: [int(field("ecc"))] * 2,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: field("pcie")[0],
            "nvmlDeviceGetMaxPcieLinkWidth": lambda _: field("pcie")[1],
            "nvmlDeviceGetNvLinkState": lambda _, link: field("links"),
            "nvmlDeviceGetNvLinkVersion": lambda _, link: field("links"),
        }

    def _by_uuid(self, uuid: str) -> str:
        self.asked_for.append(uuid)
        if uuid != self._record["uuid"]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid


@contextmanager
def a_gpu_here(name: str, sensors: Sensors) -> Iterator[Device]:
    """``cuda:0`` is a GPU of the shipped sheets, of compute capability 9.0; the CPU computes."""
    gpu = Device(
        torch=torch.device("cpu"),
        sheet=Sheet(name, None),
        timer=CpuTimer(1),
        sensors=sensors,
        library="torch; CUDA 13.0",
    )

    @contextmanager
    def opened(where: torch.device, source: str) -> Iterator[Device]:
        assert where.type == "cuda"
        yield gpu

    with pytest.MonkeyPatch.context() as patch:
        for module in (session, compare):
            patch.setattr(module, "named", lambda text: torch.device(text))
            patch.setattr(module, "opened", opened)
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        patch.setattr(steps, "COMPILED", ())  # minutes each on a CPU
        patch.setattr(steps, "POWER_S", 0.05)
        yield gpu
