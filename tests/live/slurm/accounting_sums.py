"""Sums over the jobs of accounting, made from what sacct prints, to compare a report with."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner
from windows import Window, iso

from predictor.cli.main import main

from .cluster import SlurmCluster

HOUR_S = 3600
# How accounting's words are counted.
OUTCOMES = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "timed_out",
    "DEADLINE": "timed_out",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "RUNNING": "running",
}
FORMAT = (
    "JobID",
    "User",
    "Account",
    "Partition",
    "State",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "AllocTRES",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job of sacct that had GPUs; ``gpu_s`` are its GPU-seconds inside a window."""

    user: str
    account: str
    partition: str
    outcome: str
    gpu_s: int
    suspended_gpu_s: int


def report(*words: str) -> Any:
    done = CliRunner().invoke(main, ["capacity", "report", "--format", "json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def rows_of_sacct(here: SlurmCluster, window: Window) -> list[Row]:
    """What sacct says: GPUs times the seconds that a job held them, clipped to the window."""
    text = here.run(
        "sacct",
        "-a",
        "-X",
        "-D",
        "-n",
        "-P",
        "--noconvert",
        f"--format={','.join(FORMAT)}",
        "-S",
        f"{iso(window.since_s):.19}",
        "-E",
        f"{iso(window.until_s):.19}",
        env={"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"},
    ).stdout
    found = [dict(zip(FORMAT, line.split("|"), strict=True)) for line in text.splitlines()]
    return [row for told in found for row in _row(told, window)]


def _row(told: dict[str, str], window: Window) -> Iterator[Row]:
    gpus = re.search(r"gres/gpu=(\d+)", told["AllocTRES"])
    if gpus is None or not told["Start"].isdecimal():
        return
    start_s, ended = int(told["Start"]), told["End"].isdecimal()
    end_s = int(told["End"]) if ended else window.until_s
    hours, minutes, seconds = map(int, told["Suspended"].split(":"))
    suspended_s = hours * HOUR_S + minutes * 60 + seconds
    if ended:
        assert int(told["ElapsedRaw"]) == end_s - start_s - suspended_s
    outcome = "running" if end_s > window.until_s else OUTCOMES[told["State"].split()[0]]
    if window.seconds(start_s, end_s):
        yield Row(
            user=told["User"],
            account=told["Account"],
            partition=told["Partition"],
            outcome=outcome,
            gpu_s=int(gpus[1]) * window.seconds(start_s, end_s),
            suspended_gpu_s=int(gpus[1]) * suspended_s,
        )


def summed(rows: Iterable[Row], field: str) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[getattr(row, field)] += row.gpu_s
    return {key: found for key, found in sums.items() if found}


def split(found: Any, dimension: str) -> dict[str, int]:
    sums = {each["key"]: seconds_of(each["hours"]) for each in found["splits"][dimension]}
    return {key: gpu_s for key, gpu_s in sums.items() if gpu_s}


def seconds_of(hours: dict[str, float]) -> int:
    return sum(round(3600 * value) for value in hours.values())


def outcomes(hours: dict[str, float]) -> dict[str, int]:
    return {name: round(3600 * value) for name, value in hours.items() if value}


def is_the_same(found: Any, rows: list[Row]) -> None:
    """Totals, and every split that accounting knows."""
    assert outcomes(found["hours"]) == summed(rows, "outcome")
    assert found["origin"]["jobs"] == len(rows)
    for dimension in ("account", "user", "partition"):
        assert split(found, dimension) == summed(rows, dimension)
        jobs = Counter(getattr(row, dimension) for row in rows)
        assert {e["key"]: e["jobs"] for e in found["splits"][dimension]} == jobs
