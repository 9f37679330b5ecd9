"""What a device is called, and what its sheet says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
import yaml

from predictor.errors import NotInstalledError, ProfilerError
from predictor.measure.profiler import device, nvml
from predictor.measure.profiler.device import Sheet, cpu_facts, formats, gpu_sheet
from predictor.measure.profiler.directory import directory
from predictor.measure.profiler.nvml import Sensors, Watched
from predictor.measure.profiler.timing import CpuTimer
from profiles import joined
from profiles.check import check
from profiles.gpus import find_gpu, gpus

EPYC = """\
processor	: 0
model name	: AMD EPYC 7763 64-Core Processor
cpu family	: 25

processor	: 1
model name	: AMD EPYC 7763 64-Core Processor
"""
HIDDEN = """\
processor	: 0
cpu family	: 6
model		: 143
model name	: Intel(R) Xeon(R) Processor @ 2.10GHz
stepping	: 8
"""


def facts(tmp_path: Path, text: str) -> Any:
    (tmp_path / "cpuinfo").write_text(text)
    for index, level, size in ((0, 1, "48K"), (2, 2, "2048K"), (3, 3, "105M")):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    return cpu_facts(tmp_path / "cpuinfo", tmp_path / "cpu0")


def test_a_cpu_is_called_by_its_model(tmp_path: Path) -> None:
    assert facts(tmp_path, EPYC).slug == "amd-epyc-7763-64-core"


def test_a_model_that_the_hypervisor_hides_is_told_apart_by_numbers(tmp_path: Path) -> None:
    assert facts(tmp_path, HIDDEN).slug == "intel-xeon-6-143-8"


def test_the_last_level_is_the_cache(tmp_path: Path) -> None:
    assert facts(tmp_path, EPYC).last_cache_bytes == 105 * 2**20


def test_what_a_system_does_not_say_is_left_out(tmp_path: Path) -> None:
    found = cpu_facts(tmp_path / "none", tmp_path / "none")
    assert found.slug
    assert (found.boost_clock_mhz, found.last_cache_bytes) == (None, 0)
    assert found.memory_bytes > 0


@dataclass
class FakeNvml:
    """NVML of a GPU that nobody knows, with 2 links up and none beyond."""

    NVMLError: type[Exception] = OSError
    NVML_CLOCK_SM: int = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM: int = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU: int = pynvml.NVML_TEMPERATURE_GPU
    reasons: int = 0
    asked: list[str] = field(default_factory=list)

    def nvmlInit(self) -> None:  # noqa: N802
        self.asked.append("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.asked.append("shutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"570.86"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return str(index)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        return 1700 if kind == self.NVML_CLOCK_SM else 9000

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        return 2100

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return 251_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: str) -> int:  # noqa: N802
        return 300_000

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:  # noqa: N802
        return 300_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:  # noqa: N802
        return 4

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:  # noqa: N802
        if link > 1:
            raise OSError("not supported")
        return 1

    def nvmlDeviceGetNvLinkVersion(self, handle: str, link: int) -> int:  # noqa: N802
        return 3


def test_the_functions_of_nvml_are_those_of_pynvml() -> None:
    used = [name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert len(used) > 10
    for name in used:
        assert hasattr(pynvml, name)


@pytest.mark.parametrize(
    ("reasons", "slowed"),
    [(0x0, False), (0x1, False), (0x4, False), (0x8, True), (0x40, True), (0x81, True)],
)
def test_heat_and_power_brakes_slow_a_gpu_and_its_power_cap_does_not(
    reasons: int, slowed: bool
) -> None:
    assert Sensors(FakeNvml(reasons=reasons), None, 0).slowed() is slowed


def test_readings_are_summed_up() -> None:
    watched = Watched(Sensors(FakeNvml(), "GPU-1", 0))
    watched.look()
    watched.look()
    summary = watched.summary()
    assert summary["power_w"] == {"min": 251.0, "median": 251.0, "max": 251.0}
    assert summary["sm_clock_mhz"]["max"] == 1700
    assert Watched(None).summary() == {}


def test_a_machine_without_a_driver_is_named() -> None:
    broken = FakeNvml()
    broken.nvmlInit = lambda: (_ for _ in ()).throw(OSError("no driver"))  # type: ignore[method-assign]
    with pytest.raises(ProfilerError, match="no driver"):
        Sensors(broken, None, 0)


def test_a_missing_package_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(nvml, "import_module", missing)
    with pytest.raises(NotInstalledError, match=r"precision-time\[profile\]"):
        nvml.opened(None, 0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What torch says of a GPU; products and copies run on the CPU."""
    said = SimpleNamespace(
        name="NVIDIA H200",
        major=12,
        minor=0,
        total_memory=96 * 2**30,
        L2_cache_size=96 * 2**20,
        multi_processor_count=188,
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: said.name)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: said)
    monkeypatch.setattr(device, "copy_gb_per_s", lambda *_: 1500.0)
    monkeypatch.setattr(
        device,
        "gpu_peaks",
        lambda *_: {"fp32": 90.0, "tf32": 200.0, "fp16_tensor": 400.0, "bf16_tensor": 401.0},
    )
    return said


def sheet(cuda: SimpleNamespace) -> Sheet:
    return gpu_sheet(torch.device("cpu"), CpuTimer(1), Sensors(FakeNvml(), None, 0), "measured")


def test_a_known_gpu_takes_its_shipped_sheet(cuda: SimpleNamespace) -> None:
    assert sheet(cuda) == Sheet("h200-sxm-141gb", None)


def test_an_unknown_gpu_gets_a_sheet_that_the_check_takes(
    cuda: SimpleNamespace, tmp_path: Path, home: Path
) -> None:
    cuda.name = "NVIDIA RTX PRO 9999"
    made = sheet(cuda)
    assert made.device == "nvidia-rtx-pro-9999-96gb"
    place = directory(tmp_path)
    place.add_sheet(made)
    place.add_source("site", "a test", "torch")
    joined.forget()
    assert check(tmp_path) == []
    entry = yaml.safe_load((tmp_path / "gpus.yaml").read_text())[made.device]
    assert entry["pcie_gb_per_s"] == pytest.approx(31.5, abs=0.1)
    assert (entry["nvlink_gb_per_s"], entry["tensor_core_generation"]) == (100.0, 5)
    assert made.device not in gpus()


def test_formats_follow_the_sheet() -> None:
    assert formats(find_gpu("p100-pcie-16gb")) == ("fp32", "fp16")
    assert formats(find_gpu("v100-sxm2-16gb")) == ("fp32", "fp16")
    assert formats(find_gpu("a100-sxm4-80gb")) == ("fp32", "tf32", "fp16", "bf16")
    assert formats(find_gpu("h200-sxm-141gb"))[-1] == "fp8"
