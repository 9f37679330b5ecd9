"""What one case may cost, and how much time a row gets."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.conventions import MATMUL_OPS
from profiles.gpus import Gpu
from profiles.rules import matmul_peak

from .case import Case

# A run of this many rows covers every family many times over; a longer run times each row longer.
ROWS = 2500
SHORTEST_ROW_S, LONGEST_ROW_S = 0.004, 1.0
CALLS = 5  # of the most expensive case in the time of a row
# A kernel reaches about this share of the peaks.
EFFICIENCY = 0.5
# Tensors of a case: inputs, outputs, gradients, and a copy in another layout.
MEMORY_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a case on one device: seconds of a call, bytes it moves, seconds of a row."""

    gpu: Gpu
    row_s: float

    @classmethod
    def of(cls, gpu: Gpu, minutes: float) -> Limits:
        """The bounds of a run of so many minutes."""
        return cls(gpu=gpu, row_s=min(max(60 * minutes / ROWS, SHORTEST_ROW_S), LONGEST_ROW_S))

    def allow(self, case: Case) -> bool:
        """Whether the forward of a case fits in memory and time."""
        row = case.row(self.gpu.name, "fwd", 1.0)
        flops, moved = float(row.flops[0]), float(row.bytes[0])
        seconds = roofline_s(self.gpu, case.op, case.dtype, flops, moved)
        fits = moved < MEMORY_SHARE * self.gpu.memory_bytes
        return fits and seconds < EFFICIENCY * self.row_s / CALLS


def roofline_s(gpu: Gpu, op: str, dtype: str, flops: float, moved: float) -> float:
    """Least seconds of an operator by the peaks of a data sheet."""
    peak = matmul_peak(gpu, dtype) if op in MATMUL_OPS else None
    compute = flops / (peak or gpu.peak_flops["fp32"])
    return max(compute, moved / gpu.bandwidth_bytes_per_s)
