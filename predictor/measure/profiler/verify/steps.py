"""Whole steps that were measured on a device: one row each in ``steps.csv`` of its directory."""

from __future__ import annotations

import csv
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic

import torch

from ....job.precision import Precision
from ..device import CPU, Device
from ..directory import opened_rows
from ..measuring import SLOWED
from ..timing import Pace, Timing
from .candidates import CANDIDATES, NETWORKS, Candidate
from .measure import Measured, measured, precisions

TABLE = "steps.csv"  # in the directory, and in its quarantine
COLUMNS = (
    "id",
    "device",
    "network",
    "precision",
    "compiled",
    "batch_size",
    "step_ms",
    "spread",
    "samples",
    "pace",
    "peak_bytes",
    "power_w",
    "library",
)
# Compiling takes minutes: of what people compile for.
COMPILED = Precision.MIXED_BF16_FP32
# Most of a reason that is kept; torch's tell of every allocation.
REASON_CHARS = 160

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One network to train in one precision."""

    candidate: Candidate
    precision: Precision
    compiled: bool = False

    @property
    def name(self) -> str:
        """The precision, and whether the network is compiled."""
        return f"{self.precision.value}, compiled" if self.compiled else self.precision.value

    def id(self, device: str) -> str:
        """What the row is called."""
        how = "compiled" if self.compiled else "eager"
        batch = self.candidate.batch_size
        return f"{device}/{self.candidate.name}/{self.precision.value}/{how}/{batch}"


@dataclass(frozen=True, slots=True)
class StepRow:
    """What was measured of a run."""

    run: StepRun
    found: Measured


def networks_for(device: torch.device) -> tuple[Candidate, ...]:
    """Networks in usual sizes for a GPU, small ones for a CPU."""
    return CANDIDATES if device.type == CPU else NETWORKS


def runs_for(device: torch.device, networks: Sequence[Candidate]) -> list[StepRun]:
    """Every network in every precision of a device, the formats people train in first."""
    first = (Precision.MIXED_BF16_FP32, Precision.MIXED_FP16_FP32, Precision.FP32)
    found = sorted(precisions(device), key=lambda p: first.index(p) if p in first else len(first))
    runs = [StepRun(candidate=c, precision=p) for p in found for c in networks]
    if device.type != CPU and COMPILED in found:
        runs += [StepRun(candidate=c, precision=COMPILED, compiled=True) for c in networks]
    return runs


def train(
    root: Path,
    device: Device,
    runs: Sequence[StepRun],
    *,
    pace: Pace | None = None,
    minutes: float = float("inf"),
    stop: Event | None = None,
    progress: Progress = lambda stage, share: None,
) -> int:
    """Measure the runs that have no row yet until the minutes are over; how many are left.

    A run that cannot be measured (no memory, a kernel that is missing, clocks held down by heat)
    goes to the quarantine with the reason, and is not tried again.
    """
    name, end_s = device.sheet.device, monotonic() + 60 * minutes
    with opened_rows(root, TABLE, TABLE, COLUMNS) as rows:
        left = [run for run in runs if run.id(name) not in rows.done]
        for number, run in enumerate(left):
            if monotonic() >= end_s or (stop is not None and stop.is_set()):
                return len(left) - number
            progress(f"training {run.candidate.name}, {run.name}", number / len(left))
            found, fault = _measured(run, device, pace)
            rows.add(_cells(run, device, found), fault)
            _release(device)
    return 0


def devices(root: Path) -> list[str]:
    """Devices of which a directory has steps."""
    return sorted({row["device"] for row in _rows(root)})


def read(root: Path, device: str, networks: Sequence[Candidate]) -> Iterator[StepRow]:
    """The rows of a device; those of networks that are not known any more are skipped."""
    known = {c.name: c for c in networks}
    for row in _rows(root):
        candidate = known.get(row["network"])
        if candidate is None or row["device"] != device:
            continue
        run = StepRun(
            candidate=candidate,
            precision=Precision(row["precision"]),
            compiled=row["compiled"] == "yes",
        )
        if run.id(device) == row["id"]:
            yield StepRow(run, _found(row))


def _rows(root: Path) -> list[dict[str, str]]:
    path = root / TABLE
    return list(csv.DictReader(path.read_text("utf-8").splitlines())) if path.exists() else []


def _measured(
    run: StepRun, device: Device, pace: Pace | None
) -> tuple[Measured | None, str | None]:
    """What was measured, and why it is not to be used."""
    try:
        found = measured(
            run.candidate,
            run.precision,
            device.torch,
            pace,
            compiled=run.compiled,
            sensors=device.sensors,
        )
    except RuntimeError as error:  # torch's own, out of memory among them
        return None, " ".join(str(error).split())[:REASON_CHARS]
    slow = device.sensors is not None and device.sensors.slowed()
    return found, SLOWED if slow else None


def _release(device: Device) -> None:
    gc.collect()
    torch.compiler.reset()
    if device.torch.type != CPU:
        torch.cuda.empty_cache()


def _cells(run: StepRun, device: Device, found: Measured | None) -> tuple[str, ...]:
    """A row in ``COLUMNS``, without figures where nothing was measured."""
    name, figures = device.sheet.device, [""] * 6
    if found is not None:
        timing = found.timing
        figures = [
            f"{timing.time_s * 1e3:.6g}",
            f"{timing.spread:.4f}",
            str(timing.samples),
            f"{found.pace:.4f}",
            "" if found.peak_bytes is None else str(found.peak_bytes),
            "" if found.power_w is None else f"{found.power_w:.1f}",
        ]
    return (
        run.id(name),
        name,
        run.candidate.name,
        run.precision.value,
        "yes" if run.compiled else "no",
        str(run.candidate.batch_size),
        *figures,
        device.library,
    )


def _found(row: dict[str, str]) -> Measured:
    timing = Timing(
        time_s=float(row["step_ms"]) / 1e3,
        spread=float(row["spread"]),
        samples=int(row["samples"]),
    )
    return Measured(
        timing,
        float(row["pace"]),
        int(row["peak_bytes"]) if row["peak_bytes"] else None,
        float(row["power_w"]) if row["power_w"] else None,
    )
