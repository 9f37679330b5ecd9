"""What NVML says of a GPU: driver, clocks, power, temperature, and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

from ...errors import ProfilerError
from ...optional import needs

EVERY_S = 2.0


class Watched:
    """Readings of the sensors of a GPU; of a CPU there are none."""

    def __init__(self, sensors: Sensors | None) -> None:
        self._sensors = sensors
        self._readings: list[Reading] = []
        self._next_s = 0.0

    def look(self) -> None:
        """Take a reading if the last one is old."""
        if self._sensors is not None and monotonic() >= self._next_s:
            self._readings.append(self._sensors.reading())
            self._next_s = monotonic() + EVERY_S

    def summary(self) -> Mapping[str, Mapping[str, float]]:
        """Lowest, middle and highest of each reading that NVML gave; empty without any."""
        seen = {
            name: [value for reading in self._readings if (value := getattr(reading, name))]
            for name in Reading._fields
        }
        return {
            name: {"min": min(found), "median": median(found), "max": max(found)}
            for name, found in seen.items()
            if found
        }


# Reasons for lowered clocks that spoil a row: hardware slowdown, its thermal and power-brake kinds,
# and the driver's thermal slowdown (nvml.h, nvmlClocksEventReasons).
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
MILLI, PERCENT = 1e-3, 1e-2  # the units of NVML
LINKS = 18  # at most, of one GPU
# Both directions of one NVLink by its version, GB/s (NVIDIA data sheets).
LINK_GB_PER_S = {1: 40, 2: 50, 3: 50, 4: 50, 5: 100}
# One direction of one PCIe lane by its generation, GB/s (PCI-SIG).
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


class Reading(NamedTuple):
    """A GPU at one moment; None where it does not say, as a part of a GPU (MIG) does not."""

    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None


def opened(uuid: str | None, index: int) -> Sensors:
    """The sensors of a GPU; raises NotInstalledError without nvidia-ml-py, ProfilerError if deaf.

    ``uuid`` is the one torch knows; without it ``index`` counts all GPUs of the machine.
    """
    with needs("profile"):
        nvml = import_module("pynvml")
    return Sensors(nvml, uuid, index)


class Sensors:
    """One GPU as NVML sees it; ``nvml`` is the module pynvml, which states no types."""

    def __init__(self, nvml: Any, uuid: str | None, index: int) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._gpu = _handle(nvml, uuid, index)
        except nvml.NVMLError as error:
            raise ProfilerError(f"NVML cannot be used: {error}") from None

    def close(self) -> None:
        """Leave NVML."""
        self._nvml.nvmlShutdown()

    def driver(self) -> str:
        """Version of the driver."""
        version = self._nvml.nvmlSystemGetDriverVersion()
        return str(version.decode() if isinstance(version, bytes) else version)

    def ecc(self) -> bool | None:
        """Whether the memory corrects errors, which takes some of its bandwidth."""
        found = self._asked(lambda gpu: self._nvml.nvmlDeviceGetEccMode(gpu)[0])
        return None if found is None else bool(found)

    def reading(self) -> Reading:
        """Clocks, power and temperature."""
        nvml, ask = self._nvml, self._asked
        return Reading(
            sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power_w=ask(nvml.nvmlDeviceGetPowerUsage, scale=MILLI),
            power_limit_w=ask(nvml.nvmlDeviceGetPowerManagementLimit, scale=MILLI),
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        )

    def busy(self) -> float | None:
        """The share of the last second in which something ran on the GPU."""
        ask = self._nvml.nvmlDeviceGetUtilizationRates
        return self._asked(lambda gpu: ask(gpu).gpu, scale=PERCENT)

    def slowed(self) -> bool:
        """Whether heat or a power brake holds the clocks down at this moment."""
        reasons = self._asked(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return bool(int(reasons or 0) & SLOWED)

    def boost_clock_mhz(self) -> float:
        """The highest clock of the multiprocessors, 0 where it is not told."""
        nvml = self._nvml
        return self._asked(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM) or 0.0

    def tdp_w(self) -> float:
        """The power limit as it left the factory, 0 where it is not told."""
        ask = self._nvml.nvmlDeviceGetPowerManagementDefaultLimit
        return self._asked(ask, scale=MILLI) or 0.0

    def pcie_gb_per_s(self) -> float:
        """One direction of the host link, 0 where it is not told."""
        generation = self._asked(self._nvml.nvmlDeviceGetMaxPcieLinkGeneration)
        lane = LANE_GB_PER_S.get(int(generation or 0), 0.0)
        return lane * (self._asked(self._nvml.nvmlDeviceGetMaxPcieLinkWidth) or 0.0)

    def nvlink_gb_per_s(self) -> float:
        """Both directions of all links that are up, 0 without any."""
        total, nvml = 0.0, self._nvml
        for link in range(LINKS):
            if self._asked(nvml.nvmlDeviceGetNvLinkState, link):
                version = self._asked(nvml.nvmlDeviceGetNvLinkVersion, link)
                total += LINK_GB_PER_S.get(int(version or 0), 0.0)
        return total

    def _asked(self, ask: Callable[..., float], *more: int, scale: float = 1.0) -> float | None:
        """What NVML answers, None where this device or driver does not say."""
        try:
            return scale * ask(self._gpu, *more)
        except self._nvml.NVMLError:
            return None


def _handle(nvml: Any, uuid: str | None, index: int) -> Any:
    """NVML's name for a GPU, or for the part of one that MIG gives."""
    for kind in ("GPU", "MIG") if uuid else ():
        with suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}")
    return nvml.nvmlDeviceGetHandleByIndex(index)
