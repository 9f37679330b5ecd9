"""The figures of a backtest as CSV files, one for each plot and one for the policies."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .figures import queue_length
from .run import Backtest

FIGURES, WAITS, CURVE, QUEUE = "figures.csv", "waits.csv", "tradeoff.csv", "queue.csv"
QUEUE_POINTS = 400
SHARES = np.linspace(0, 1, 201)


def write_tables(found: Backtest, folder: Path) -> list[Path]:
    """Write them all into a folder that exists; returns the files."""
    names = [each.policy.name for each in found.replayed]
    figures = [each.figures.as_dict() for each in found.replayed]
    written = [
        _write(folder / FIGURES, list(figures[0]), ([*row.values()] for row in figures)),
        _write(
            folder / WAITS,
            ["share_of_jobs", *_columns(names, "wait_s")],
            wait_quantiles(found).tolist(),
        ),
        _write(
            folder / QUEUE,
            ["time_s", *_columns(names, "waiting_jobs")],
            queue_lengths(found).tolist(),
        ),
    ]
    if found.curve:
        rows = [{"quantile": p.quantile} | asdict(p.limits) for p in found.curve]
        written.append(_write(folder / CURVE, list(rows[0]), ([*row.values()] for row in rows)))
    return written


def wait_quantiles(found: Backtest) -> NDArray[np.float64]:
    """A share of the jobs, and the seconds that so many wait at most, by policy."""
    waits = [each.schedule.start_s - found.work.submit_s for each in found.replayed]
    return np.column_stack([SHARES, *(np.quantile(wait, SHARES) for wait in waits)])


def queue_lengths(found: Backtest) -> NDArray[np.float64]:
    """Seconds since the first submission, and the jobs that wait then, by policy."""
    first = float(found.work.submit_s.min())
    last = max(float(each.schedule.start_s.max()) for each in found.replayed)
    at_s = np.linspace(first, last, QUEUE_POINTS)
    waiting = [queue_length(found.work, each.schedule, at_s) for each in found.replayed]
    return np.column_stack([at_s - first, *waiting])


def _columns(names: Sequence[str], unit: str) -> list[str]:
    return [f"{name} {unit}" for name in names]


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
    return path
