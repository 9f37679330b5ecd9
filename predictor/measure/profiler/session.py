"""A run of the profiler: cases in order until the time is up, each row kept as it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import monotonic

import torch

from profiles import joined, roots
from profiles.gpus import find_gpu

from .case import Case, CaseLimits
from .collectives import check, collective_rows
from .device import CPU, Device, formats, named, opened
from .directory import COLLECTIVES, OPERATORS, Directory, Rows, directory
from .measuring import FORWARD, Row, measured
from .nvml import Watched
from .order import ordered, popular

Progress = Callable[[str, float], None]
COLLECTIVE_SHARE = 0.25  # of the time, where collectives are measured
PATH = "precision-time profile"  # what the column `path` of a row says


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


def profile(
    request: Request, *, progress: Progress = lambda stage, share: None, stop: Event | None = None
) -> Summary:
    """Measure a device until the minutes are over, ``stop`` is set, or every case is done.

    Goes on where an earlier run of the same directory ended. Raises ProfilerError where device or
    directory cannot be used.
    """
    start, now = monotonic(), datetime.now(UTC)
    where = named(request.device)
    if request.ranks is not None:
        check(where, request.ranks, request.backend)
    place = directory(request.out)
    said = f"measured by precision-time profile on {now:%Y-%m-%d}, torch {torch.__version__}"
    progress(f"opening {request.device}", 0.0)
    with _known(place), opened(where, said) as device:
        place.add_sheet(device.sheet)
        if where.type == CPU:
            device = replace(device, pace=place.pace(device.sheet.device))
        run = _Run(request, place, device, start, progress, stop or Event())
        run.source = f"{device.sheet.device}-{now:%Y%m%d}"
        place.add_source(run.source, f"{device.sheet.device}, {said}", device.library)
        run.collectives()
        run.operators()
        summary = run.summary()
        place.log({**asdict(summary), **_circumstances(request, device, now, run)})
    return summary


@contextmanager
def _known(place: Directory) -> Iterator[None]:
    """Let the sheets of a directory be found while it is filled."""
    with roots.also(place.root):
        try:
            yield
        finally:
            joined.forget()


def _circumstances(
    request: Request, device: Device, now: datetime, run: _Run
) -> Mapping[str, object]:
    return {
        "started": now.isoformat(timespec="seconds"),
        "minutes": request.minutes,
        "library": device.library,
        "threads": torch.get_num_threads(),
        "driver": device.sensors.driver() if device.sensors else None,
        "sensors": run.watched.summary(),
    }


class _Run:
    """The tables of one device while they grow."""

    source = ""

    def __init__(
        self,
        request: Request,
        place: Directory,
        device: Device,
        start_s: float,
        progress: Progress,
        stop: Event,
    ) -> None:
        self._request, self._place, self._device = request, place, device
        self._name = device.sheet.device
        self._gpu = find_gpu(self._name)
        self._start_s, self._progress, self._stop = start_s, progress, stop
        self._counted: dict[str, Counter[str]] = {OPERATORS: Counter(), COLLECTIVES: Counter()}
        self._refused: Counter[str] = Counter()
        self._stood = 0
        self.watched = Watched(device.sensors)

    def operators(self) -> None:
        """Measure case after case."""
        names = formats(self._gpu)
        limits = CaseLimits.of(self._gpu, self._request.minutes)
        with self._rows(OPERATORS) as rows:
            for case in ordered(limits, names, lambda: popular(self._gpu, names)):
                if self._over():
                    break
                if case.id(self._name, FORWARD) in rows.done:
                    continue
                for row in measured(case, self._device, limits, rows.done):
                    self.watched.look()
                    self._add(OPERATORS, case.op, rows, self._cells(case, row), row.fault)
                self._say(f"{case.family} {case.dtype}")

    def _cells(self, case: Case, row: Row) -> tuple[str, ...]:
        """A row in ``OPERATOR_COLUMNS``."""
        time_us = f"{row.timing.time_s * 1e6:.6g}" if row.timing else ""
        return (
            case.id(self._name, row.direction),
            self.source,
            PATH,
            self._device.library,
            case.op,
            row.direction,
            case.dtype,
            case.cell,
            case.shape.params,
            time_us,
            row.note,
        )

    def collectives(self) -> None:
        """Measure collectives over several ranks, if the request has any."""
        if self._request.ranks is None:
            return
        seconds = COLLECTIVE_SHARE * 60 * self._request.minutes
        with self._rows(COLLECTIVES) as rows:
            for row in collective_rows(
                self._device,
                self._gpu,
                self._request.ranks,
                self._request.backend,
                done=rows.done,
                seconds=seconds,
                stop=self._stop,
            ):
                cells = row.cells(self.source, PATH)
                self._add(COLLECTIVES, row.op, rows, cells, row.fault)
                self._say(row.op)

    @contextmanager
    def _rows(self, kind: str) -> Iterator[Rows]:
        with self._place.rows(kind, self._name) as rows:
            self._stood += rows.stood
            yield rows

    def _add(
        self, kind: str, op: str, rows: Rows, cells: tuple[str, ...], fault: str | None
    ) -> None:
        rows.add(cells, fault)
        if fault is None:
            self._counted[kind][op] += 1
        else:
            self._refused[_kind(fault)] += 1

    def _over(self) -> bool:
        return self._stop.is_set() or self._elapsed_s() >= 60 * self._request.minutes

    def _elapsed_s(self) -> float:
        return monotonic() - self._start_s

    def _say(self, what: str) -> None:
        rows = sum(map(Counter.total, self._counted.values()))
        share = self._elapsed_s() / (60 * self._request.minutes)
        self._progress(f"{rows} rows, {what}", min(share, 1.0))

    def summary(self) -> Summary:
        """What was added so far."""
        return Summary(
            device=self._name,
            operators=dict(self._counted[OPERATORS]),
            collectives=dict(self._counted[COLLECTIVES]),
            refused=dict(self._refused),
            stood=self._stood,
            seconds=self._elapsed_s(),
        )


def _kind(fault: str) -> str:
    """A reason without its figures."""
    return fault.partition(":")[0] if fault.startswith("cannot run") else fault
