"""How a device was while rows were measured: its readings now and then, summed up."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import monotonic

from .nvml import Reading, Sensors

EVERY_S = 2.0
_FIELDS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")


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
        """Lowest, middle and highest of each reading; empty without any."""
        if not self._readings:
            return {}
        columns = {name: [getattr(r, name) for r in self._readings] for name in _FIELDS}
        return {
            name: {"min": min(found), "median": median(found), "max": max(found)}
            for name, found in columns.items()
        }
