"""Measures how fast a history is filled from sacct, and that memory stays flat, in one run.

A program prints rows as sacct does; they are ingested into SQLite, and only counted, one after the
other. Run with ``make bench-ingest [ROWS=1000000]``; exits with 1 if a goal is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from goals import Goal, all_kept
from ingest_bench import fill, sacct

from tests.slurm import replay

ROWS = 1_000_000
DAYS = 30
FIRST_S = 1_700_000_000
GOAL_S = 120.0  # for ROWS
FLAT = 1.1  # memory at the end over that after a tenth
PAYLOADS = replay.PAYLOADS / "2511"
VALUE = 14


@dataclass(frozen=True, slots=True)
class Bare:
    """Rows that were only printed and counted."""

    rows: int
    bytes: int
    wall_s: float


def stand_in(folder: Path, rows: int) -> Path:
    """A directory of commands: a sacct with so many rows, the rest as captured."""
    folder.mkdir()
    commands = replay.commands(folder, PAYLOADS)
    words = [
        sys.executable,
        "-S",
        sacct.__file__,
        str(PAYLOADS / "ended.txt"),
        str(rows),
        str(DAYS),
        str(FIRST_S),
    ]
    (commands / "sacct").write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    return commands


def count(commands: Path) -> Bare:
    """The rows and bytes of the whole period, read as fast as they can be printed."""
    first, last = ("2023-11-14T22:13:20", "2100-01-01T00:00:00")
    argv = [
        str(commands / "sacct"),
        "--delimiter=~~0123456789abcdef~~",
        f"--starttime={first}",
        f"--endtime={last}",
    ]
    rows = size = 0
    began = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rows, size = rows + 1, size + len(line)
    return Bare(rows, size, time.perf_counter() - began)


def filled(commands: Path, history: Path, rows: int) -> dict[str, Any]:
    """Figures of one ingest in a process of its own."""
    period = [str(FIRST_S), str(FIRST_S + DAYS * sacct.DAY_S)]
    argv = [sys.executable, fill.__file__, str(commands), str(history), *period, str(rows)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=root)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def report(rows: int, bare: Bare, first: dict[str, Any], again: dict[str, Any]) -> list[Goal]:
    """Print the table; the goals."""
    print(f"{rows:,} rows of sacct, {bare.bytes / bare.rows:.0f} bytes each, {DAYS} days\n")
    counted = bare.rows / bare.wall_s
    table: list[tuple[str, ...]] = [
        ("", "s", "without core", "processor s", "rows/s", "of counted"),
        ("printed and counted", f"{bare.wall_s:.1f}", "", "", f"{counted:,.0f}", ""),
    ]
    for name, figures in (("into an empty SQLite", first), ("the same again", again)):
        seconds = (f"{figures[f'{part}_s']:.1f}" for part in ("wall", "waited", "processor"))
        speed = rows / figures["wall_s"]
        table.append((name, *seconds, f"{speed:,.0f}", f"{speed / counted:.1%}"))
    for name, *cells in table:
        print((f"{name:24}" + "".join(f"{cell:>{VALUE}}" for cell in cells)).rstrip())
    growth = first["end_bytes"] / first["early_bytes"]
    mib = {name: first[f"{name}_bytes"] / 2**20 for name in ("early", "end", "peak")}
    print(
        f"\nmemory: {mib['early']:.0f} MiB after a tenth of the rows, {mib['end']:.0f} MiB after "
        f"all ({growth:.2f} x), peak {mib['peak']:.0f} MiB"
    )
    print(
        f"records: {first['new']:,} new, left out {first['left_out']}, {first['unread']} unread; "
        f"again: {again['new']} new, {again['changed']} changed\n"
    )
    limit_s, whole = GOAL_S * rows / ROWS, first["records"] == rows == bare.rows
    return [
        Goal("time", f"{first['wall_s']:.0f} s of {limit_s:.0f} s", first["wall_s"] <= limit_s),
        Goal("memory is flat", f"{growth:.2f} x", growth <= FLAT),
        Goal("every row, once", f"{first['records']:,}", whole and not again["new"]),
    ]


def main(rows: int) -> int:
    """Print table and goals."""
    with tempfile.TemporaryDirectory() as folder:
        commands = stand_in(Path(folder) / "bin", rows)
        history = Path(folder) / "history.sqlite"
        bare = count(commands)
        first, again = (filled(commands, history, rows) for _ in range(2))
    return 0 if all_kept(report(rows, bare, first, again)) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))
