"""What a row must satisfy to be used; a row that does not is quarantined with the reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from .conventions import FUSED_SHARE, MATMUL_OPS, TABLES, Floats
from .gpus import CPU, Gpu, find_gpu, known_gpu
from .storage import COLUMNS
from .tables import CollectiveTable, OperatorTable

Row = Mapping[str, str]

TOLERANCE = 1.05  # boost clocks a little above the data sheet, rounded times
# GeForce and TITAN cards boost far above their data sheet: an RTX 3090 is rated at 1695 MHz, its
# highest clock is 2100 MHz.
BOOST_TOLERANCE = 1.25
# NVSwitch of Hopper and later reduces in the switch (SHARP), so an all-reduce sends each byte once
# where the bus-bandwidth formula counts almost two.
IN_SWITCH_REDUCTION = 2.0
CONSISTENCY = 0.03  # throughput against iteration time of one row

_UNSPLIT = re.compile(r"\btp/pp\b.* not printed", re.IGNORECASE)
_NEEDS = TABLES["needs"]
_UNITS, _TIMES, _NUMBERS = (COLUMNS[name] for name in ("units", "times", "numbers"))


def matmul_peak(gpu: Gpu, dtype: str) -> float | None:
    """Dense FLOP/s of matrix operators in a format, None where the hardware has none."""
    for name in TABLES["peaks"].get(dtype, (dtype,)):
        if name in gpu.peak_flops:
            return gpu.peak_flops[name]
    return None


def common_fault(row: Row) -> str | None:
    """Why a row of any table cannot be used, before its numbers are looked at."""
    for column in ("id", "source_repo", "source_commit", "source_path", "license"):
        if not row.get(column):
            return f"{column} is empty"
    if known_gpu(row["gpu"]) is None:
        return f"gpu {row['gpu']!r} has no data sheet"
    if "UNRELIABLE" in row.get("note", ""):
        return "marked UNRELIABLE in its note"
    return None


def number_fault(row: Row, columns: Iterable[str]) -> str | None:
    """The first column whose text is not a positive number; empty cells pass."""
    for column in columns:
        text = row.get(column, "")
        if text and not _positive(text):
            return f"{column}={text!r} is not a positive number"
    return None


def _positive(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value > 0


def operator_faults(table: OperatorTable) -> list[str | None]:
    """Why each row contradicts physics: faster than the peak, or than memory, allows.

    Convolutions may exceed the peak (their FLOPs are algorithmic; Winograd and FFT do fewer);
    memory is judged only where the tensors are more than twice the L2 cache. The peaks of a CPU
    are no data sheet but measurements, of another moment than the row: they refute nothing.
    """
    peak, boost, bandwidth, cache = _limits(table)
    compute = table.flops / table.time_s / peak
    traffic = table.bytes / table.time_s / bandwidth
    for (op, direction), part in FUSED_SHARE.items():
        traffic[(table.op == op) & (table.direction == direction)] *= part
    matmul = np.isin(table.op, list(MATMUL_OPS))
    reasons: list[str | None] = [None] * len(table)
    _mark(reasons, np.isnan(table.flops) | np.isnan(table.bytes), "shape is incomplete")
    _mark(reasons, matmul & np.isnan(peak), "the GPU has no such matrix format")
    fast = matmul & (table.op != "conv2d") & (compute > boost)
    _mark(reasons, fast, "{:.2f} of peak FLOP/s", compute)
    big = table.bytes > 2 * cache
    _mark(reasons, big & (traffic > TOLERANCE), "{:.2f} of memory bandwidth", traffic)
    return reasons


def _limits(table: OperatorTable) -> tuple[Floats, Floats, Floats, Floats]:
    """Peak FLOP/s, its tolerance, bytes/s and L2 bytes of every row's GPU and format."""
    pairs = np.char.add(np.char.add(table.gpu, "|"), table.dtype)
    keys, inverse = np.unique(pairs, return_inverse=True)
    rows = []
    for key in keys:
        name, dtype = str(key).split("|")
        gpu = find_gpu(name)
        boosts = "GeForce" in gpu.product or "TITAN" in gpu.product
        boost = BOOST_TOLERANCE if boosts else TOLERANCE
        peak, bandwidth = matmul_peak(gpu, dtype) or np.nan, gpu.bandwidth_bytes_per_s
        if gpu.kind == CPU:
            boost, bandwidth = np.inf, np.inf
        rows.append((peak, boost, bandwidth, gpu.l2_bytes))
    limits = np.array(rows, dtype=np.float64).reshape(-1, 4)[inverse]
    return limits[:, 0], limits[:, 1], limits[:, 2], limits[:, 3]


def _link(gpu: Gpu) -> float:
    """Bytes/s that one device can send at most: ranks on a CPU meet in its memory."""
    if gpu.kind == CPU:
        return gpu.bandwidth_bytes_per_s
    return max(gpu.nvlink_bytes_per_s / 2, gpu.pcie_bytes_per_s)


def collective_faults(table: CollectiveTable) -> list[str | None]:
    """Why each row contradicts physics: a bus bandwidth above the links of one GPU."""
    reasons: list[str | None] = [None] * len(table)
    share = link_share(table)
    _mark(reasons, table.gpus < 2, "fewer than two GPUs")
    _mark(reasons, share > TOLERANCE, "{:.2f} of the link bandwidth", share)
    whole = table.nodes * table.gpus_per_node
    _mark(reasons, ~np.isnan(whole) & (whole != table.gpus), "nodes x gpus_per_node is not gpus")
    return reasons


def link_share(table: CollectiveTable) -> Floats:
    """Bus bandwidth over that of the links of one GPU, (n,)."""
    sheets = [find_gpu(str(name)) for name in table.gpu]
    link = np.array([_link(gpu) for gpu in sheets])
    sharp = np.array([g.compute_capability >= (9, 0) for g in sheets], dtype=np.bool_)
    reduces = table.op == "all_reduce"
    share: Floats = table.bus_bytes_per_s / (
        link * np.where(sharp & reduces, IN_SWITCH_REDUCTION, 1.0)
    )
    return share


def _mark(
    reasons: list[str | None], bad: NDArray[np.bool_], text: str, value: Floats | None = None
) -> None:
    for row in np.flatnonzero(bad).tolist():
        if reasons[row] is None:
            reasons[row] = text if value is None else text.format(value[row])


def measurement_fault(row: Row) -> str | None:
    """Why an end-to-end row cannot be used."""
    return next(_measurement_faults(row), None)


def _measurement_faults(row: Row) -> Iterator[str]:
    for fault in (common_fault(row), number_fault(row, _NUMBERS)):
        if fault:
            yield fault
            return
    if not row["gpus"]:
        yield "gpus is empty"
    if row["precision"] not in _NEEDS:
        yield f"precision {row['precision']!r} is not one of {', '.join(_NEEDS)}"
    elif (needed := _NEEDS[row["precision"]]) not in (None, *find_gpu(row["gpu"]).peak_flops):
        yield f"{row['gpu']} has no {needed}"
    if not any(row[column] for column in _TIMES):
        yield f"none of {', '.join(_TIMES)} is given"
    if row["throughput"] and row["unit"] not in _UNITS:
        yield f"unit {row['unit']!r} is not one of {', '.join(sorted(_UNITS))}"
    if row["nodes"] and row["gpus_per_node"]:
        whole = float(row["nodes"]) * float(row["gpus_per_node"])
        if whole != float(row["gpus"]):
            yield f"nodes x gpus_per_node is {whole:g}, gpus is {row['gpus']}"
    if not _consistent(row):
        yield "throughput and iteration_s contradict each other"
    if _UNSPLIT.search(row.get("note", "")):
        yield "how its model is split is not printed"


def _consistent(row: Row) -> bool:
    """False where batch over throughput is another time than ``iteration_s``."""
    if not (row["throughput"] and row["iteration_s"] and row["global_batch"]):
        return True
    samples = float(row["global_batch"])
    if row["unit"] == "tokens/s":
        if not row["seq_len"]:
            return True
        samples *= float(row["seq_len"])
    if row["unit"] == "steps/s":
        samples = 1.0
    ratio = samples / float(row["throughput"]) / float(row["iteration_s"])
    return abs(ratio - 1) <= CONSISTENCY
