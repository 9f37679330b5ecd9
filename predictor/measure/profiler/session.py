"""A run of the profiler: cases in order until the time is up, each row kept as it comes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import monotonic

import torch

from profiles import joined, roots
from profiles.gpus import CPU, Gpu, find_gpu
from profiles.rules import operator_faults

from ...errors import ProfilerError
from .case import Case, CaseLimits, Run, UnsupportedError
from .collectives import check, collective_rows
from .device import Device, formats, named, opened, tf32
from .directory import COLLECTIVES, OPERATORS, Rows, directory
from .families import BY_NAME
from .nvml import Watched
from .order import ordered, popular
from .timing import DISAGREE, Timing, timed

COLLECTIVE_SHARE = 0.25  # of the time, where collectives are measured
PATH = "precision-time profile"  # what the column `path` of a row says
# Copies of the tensors of a case, so that a device does not find them in its cache.
MOST_COPIES, CACHES = 32, 2.0
# What a step touches between two uses of a tensor: more than the cache of one core.
CPU_BYTES = 16 << 20
UNRELIABLE = "UNRELIABLE"
SLOWED = "heat or a power brake holds the clocks down"
FORWARD = "fwd"
LONGEST_REASON = 200
# What torch raises where a kernel, a function of this version or memory is missing.
TORCH_ERRORS = (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure where; ``ranks`` processes for collectives, None for no collectives."""

    device: str
    out: Path
    minutes: float
    ranks: int | None = None
    backend: str = "gloo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run added to a directory: rows by operator, and rows refused by reason.

    ``stood`` are the rows of the device that were there before.
    """

    device: str
    operators: Mapping[str, int]
    collectives: Mapping[str, int]
    refused: Mapping[str, int]
    stood: int
    seconds: float


class _Tally:
    """What a run gave so far, told as it comes: rows by table and operator, refusals by reason."""

    def __init__(self, seconds: float, progress: Callable[[str, float], None]) -> None:
        self.seconds, self._start_s, self._progress = seconds, monotonic(), progress
        self.rows: dict[str, Counter[str]] = {OPERATORS: Counter(), COLLECTIVES: Counter()}
        self.refused: Counter[str] = Counter()
        self.stood = 0

    @property
    def took_s(self) -> float:
        """Seconds since the run began."""
        return monotonic() - self._start_s

    def over(self, stop: Event) -> bool:
        """Whether the time is up, or somebody asked to ``stop``."""
        return stop.is_set() or self.took_s >= self.seconds

    def add(self, table: str, op: str, fault: str | None, what: str = "") -> None:
        """Count a row, or the reason why it is refused without its figures, and tell of it."""
        if fault is None:
            self.rows[table][op] += 1
        else:
            self.refused[fault.partition(":")[0] if fault.startswith("cannot run") else fault] += 1
        rows = sum(map(Counter.total, self.rows.values()))
        self._progress(f"{rows} rows, {what or op}", min(self.took_s / self.seconds, 1.0))


def profile(
    request: Request,
    *,
    progress: Callable[[str, float], None] = lambda stage, share: None,
    stop: Event | None = None,
) -> Summary:
    """Measure a device until the minutes are over, ``stop`` is set, or every case is done.

    Goes on where an earlier run of the same directory ended. Raises ProfilerError where device or
    directory cannot be used.
    """
    now, stop = datetime.now(UTC), stop or Event()
    tally, where = _Tally(60 * request.minutes, progress), named(request.device)
    if request.ranks is not None:
        check(where, request.ranks, request.backend)
    place = directory(request.out)
    said = f"measured by precision-time profile on {now:%Y-%m-%d}, torch {torch.__version__}"
    progress(f"opening {request.device}", 0.0)
    with ExitStack() as stack:
        # Sheets of the directory are found while it is filled.
        stack.enter_context(roots.also(place.root))
        stack.callback(joined.forget)
        device = stack.enter_context(opened(where, said))
        place.add_sheet(device.sheet)
        name = device.sheet.device
        if where.type == CPU:
            device = replace(device, pace=place.pace(name))
        source, watched = f"{name}-{now:%Y%m%d}", Watched(device.sensors)
        place.add_source(source, f"{name}, {said}", device.library)
        gpu = find_gpu(name)
        if request.ranks is not None:
            with place.rows(COLLECTIVES, name) as rows:
                tally.stood += rows.stood
                for row in collective_rows(
                    device,
                    gpu,
                    request.ranks,
                    request.backend,
                    done=rows.done,
                    seconds=COLLECTIVE_SHARE * tally.seconds,
                    stop=stop,
                ):
                    rows.add((row.id, source, PATH, *row.cells), row.fault)
                    tally.add(COLLECTIVES, row.op, row.fault)
        limits = CaseLimits.of(gpu, request.minutes)
        with place.rows(OPERATORS, name) as rows:
            tally.stood += rows.stood
            for case, found in _operator_rows(device, limits, rows, lambda: tally.over(stop)):
                watched.look()
                cells = found.cells(case, name, device.library)
                rows.add((cells[0], source, PATH, *cells[1:]), found.fault)
                tally.add(OPERATORS, case.op, found.fault, f"{case.family} {case.dtype}")
        summary = Summary(
            device=name,
            operators=dict(tally.rows[OPERATORS]),
            collectives=dict(tally.rows[COLLECTIVES]),
            refused=dict(tally.refused),
            stood=tally.stood,
            seconds=tally.took_s,
        )
        circumstances = {
            "started": now.isoformat(timespec="seconds"),
            "minutes": request.minutes,
            "library": device.library,
            "threads": torch.get_num_threads(),
            "driver": device.sensors.driver() if device.sensors else None,
            "ecc": device.sensors.ecc() if device.sensors else None,
            "sensors": watched.summary(),
        }
        place.log({**asdict(summary), **circumstances})
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One direction of a case: how long it took, and why it is not to be used, if so.

    ``pace`` is how fast the device was meanwhile, where that is known; the timing is that of 1.
    """

    direction: str
    timing: Timing | None
    fault: str | None
    pace: float | None = None

    @property
    def note(self) -> str:
        """How far the samples agree, after the word that keeps it out of a fit."""
        if self.timing is None:
            return UNRELIABLE
        agreement = f"spread={self.timing.spread:.3f};samples={self.timing.samples}"
        if self.pace is not None:
            agreement += f";pace={self.pace:.3f}"
        return f"{UNRELIABLE};{agreement}" if self.fault else agreement

    def cells(self, case: Case, device: str, library: str) -> tuple[str, ...]:
        """What stands in ``OPERATOR_COLUMNS`` beside the source and the path of the source."""
        time_us = f"{self.timing.time_s * 1e6:.6g}" if self.timing else ""
        return (
            case.id(device, self.direction),
            library,
            case.op,
            self.direction,
            case.dtype,
            case.cell,
            case.shape.params,
            time_us,
            self.note,
        )


def _operator_rows(
    device: Device, limits: CaseLimits, rows: Rows, over: Callable[[], bool]
) -> Iterator[tuple[Case, Row]]:
    """Each direction of each case without a row yet, in their order, until it is ``over``."""
    gpu, names = limits.gpu, formats(limits.gpu)
    for case in ordered(limits, names, lambda: popular(gpu, names)):
        if over():
            return
        if case.id(gpu.name, FORWARD) not in rows.done:
            for found in measured(case, device, limits, rows):
                yield case, found


def measured(case: Case, device: Device, limits: CaseLimits, rows: Rows) -> Iterator[Row]:
    """The directions of a case that have no row yet, the forward last.

    So where the row of the forward stands, the case is complete. A case that cannot run gives a
    forward that says why. Raises ProfilerError where the device is lost.
    """
    try:
        rows.begin(case.id(limits.gpu.name, FORWARD))
        with tf32(case.dtype == "tf32"):
            runs_of = BY_NAME[case.family].runs
            copies = [runs_of(case, device.torch) for _ in range(_copies(case, limits.gpu))]
            for direction in sorted(copies[0], key=lambda name: name == FORWARD):
                if case.id(limits.gpu.name, direction) not in rows.done:
                    runs = [copy[direction] for copy in copies]
                    yield _row(case, direction, runs, device, limits)
    except (*TORCH_ERRORS, UnsupportedError) as error:
        reason = reason_of(error)
        yield Row(direction=FORWARD, timing=None, fault=f"cannot run: {reason}")
        check_lost(reason)
        torch.cuda.empty_cache()


def reason_of(error: Exception) -> str:
    """What an error says, in one line that a table can hold."""
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def check_lost(reason: str) -> None:
    """Raise ProfilerError where the device answers no further call of this process."""
    if "CUDA error" in reason:
        raise ProfilerError(f"{reason}; run the same command again to go on")


def _row(
    case: Case, direction: str, runs: Sequence[Run], device: Device, limits: CaseLimits
) -> Row:
    timing = timed(device.timer, runs, limits.row_s)
    pace = None if device.pace is None else device.pace.since()
    if pace is not None:  # as at pace 1
        timing = replace(timing, time_s=timing.time_s * pace)
    fault = operator_faults(case.row(limits.gpu.name, direction, timing.time_s))[0]
    if not timing.reliable:
        fault = DISAGREE
    elif device.sensors is not None and device.sensors.slowed():
        fault = SLOWED
    return Row(direction=direction, timing=timing, fault=fault, pace=pace)


def _copies(case: Case, gpu: Gpu) -> int:
    """Copies of the tensors, so that a call finds them no nearer than a training step does.

    On a CPU that is in the cache all cores share, which holds more than a small step.
    """
    between = CPU_BYTES if gpu.kind == CPU else CACHES * gpu.l2_bytes
    moved = float(case.row(gpu.name, FORWARD, 1.0).bytes[0])
    return min(max(math.ceil(between / moved), 1), MOST_COPIES)
