"""The pace that was usual while the rows of a CPU were measured.

The clock of a CPU moves by tens of per cent within minutes. Its profiler states in the note of each
row how fast the CPU was, relative to the first moment of the directory, and the time as it would
have been then. Prices are those of the usual pace, as that moment may have been any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .gpus import CPU_PREFIX

_PACE = re.compile(r"(?:^|;)pace=([0-9.]+)")


def usual_pace(notes: Iterable[str]) -> float:
    """The median pace of rows by their notes, 1 where none states one."""
    paces = [float(found[1]) for note in notes if (found := _PACE.search(note))]
    return float(np.median(paces)) if paces else 1.0


def at_usual_pace(
    devices: NDArray[np.str_], notes: Sequence[str], time_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Seconds (n,) of rows at the usual pace of each CPU among ``devices`` (n,)."""
    times = time_s.copy()
    for name in np.unique(devices):
        if str(name).startswith(CPU_PREFIX):
            rows = np.flatnonzero(devices == name)
            times[rows] /= usual_pace(notes[row] for row in rows.tolist())
    return times
