"""What NVML says of a GPU: driver, clocks, power, temperature, and links."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ...errors import ProfilerError
from ...optional import needs

# Reasons for lowered clocks that spoil a row: hardware slowdown, its thermal and power-brake kinds,
# and the driver's thermal slowdown (nvml.h, nvmlClocksEventReasons).
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
LINKS = 18  # at most, of one GPU
# Both directions of one NVLink by its version, GB/s (NVIDIA data sheets).
LINK_GB_PER_S = {1: 40, 2: 50, 3: 50, 4: 50, 5: 100}
# One direction of one PCIe lane by its generation, GB/s (PCI-SIG).
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


class Nvml(Protocol):
    """The functions of nvidia-ml-py (module pynvml) that are used here."""

    NVMLError: type[Exception]
    NVML_CLOCK_SM: int
    NVML_CLOCK_MEM: int
    NVML_TEMPERATURE_GPU: int

    def nvmlInit(self) -> None:  # noqa: N802
        """Begin; raises NVMLError without driver."""

    def nvmlShutdown(self) -> None:  # noqa: N802
        """End."""

    def nvmlSystemGetDriverVersion(self) -> str | bytes:  # noqa: N802
        """Version of the driver."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        """A GPU, whatever number it has among those visible."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """A GPU by its number on the machine."""

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:  # noqa: N802
        """A clock in MHz at this moment."""

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int) -> int:  # noqa: N802
        """The highest clock in MHz."""

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:  # noqa: N802
        """Power in mW at this moment."""

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any) -> int:  # noqa: N802
        """Power limit in mW as it left the factory."""

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:  # noqa: N802
        """Degrees Celsius."""

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:  # noqa: N802
        """Why clocks are lower than asked for, a bit each."""

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int:  # noqa: N802
        """PCIe generation of GPU and slot."""

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int:  # noqa: N802
        """PCIe lanes of GPU and slot."""

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:  # noqa: N802
        """1 where a link is up; raises NVMLError where there is none."""

    def nvmlDeviceGetNvLinkVersion(self, handle: Any, link: int) -> int:  # noqa: N802
        """Version of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A GPU at one moment."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    power_w: float
    temperature_c: int


def opened(uuid: str | None, index: int) -> Sensors:
    """The sensors of a GPU; raises NotInstalledError without nvidia-ml-py, ProfilerError if deaf.

    ``uuid`` is the one torch knows; without it ``index`` counts all GPUs of the machine.
    """
    with needs("profile"):
        nvml = import_module("pynvml")
    return Sensors(nvml, uuid, index)


class Sensors:
    """One GPU as NVML sees it."""

    def __init__(self, nvml: Nvml, uuid: str | None, index: int) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._gpu = (
                nvml.nvmlDeviceGetHandleByUUID(uuid)
                if uuid
                else nvml.nvmlDeviceGetHandleByIndex(index)
            )
        except nvml.NVMLError as error:
            raise ProfilerError(f"NVML cannot be used: {error}") from None

    def close(self) -> None:
        """Leave NVML."""
        self._nvml.nvmlShutdown()

    def driver(self) -> str:
        """Version of the driver."""
        version = self._nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else version

    def reading(self) -> Reading:
        """Clocks, power and temperature."""
        nvml, gpu = self._nvml, self._gpu
        return Reading(
            sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            power_w=nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            temperature_c=nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        )

    def slowed(self) -> bool:
        """Whether heat or a power brake holds the clocks down at this moment."""
        try:
            reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._gpu)
        except self._nvml.NVMLError:
            return False
        return bool(reasons & SLOWED)

    def boost_clock_mhz(self) -> int:
        """The highest clock of the multiprocessors."""
        return self._nvml.nvmlDeviceGetMaxClockInfo(self._gpu, self._nvml.NVML_CLOCK_SM)

    def tdp_w(self) -> float:
        """The power limit as it left the factory."""
        return self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu) / 1000

    def pcie_gb_per_s(self) -> float:
        """One direction of the host link."""
        nvml, gpu = self._nvml, self._gpu
        lane = LANE_GB_PER_S[nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)]
        return lane * nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)

    def nvlink_gb_per_s(self) -> float:
        """Both directions of all links that are up, 0 without any."""
        total, nvml = 0.0, self._nvml
        for link in range(LINKS):
            try:
                if nvml.nvmlDeviceGetNvLinkState(self._gpu, link):
                    total += LINK_GB_PER_S[nvml.nvmlDeviceGetNvLinkVersion(self._gpu, link)]
            except nvml.NVMLError:
                break
        return total
