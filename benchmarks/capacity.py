"""Measures a capacity report of a million jobs, stage by stage, against a bare scan of its file.

The shipped sample is repeated, each copy shifted by a second, into a Parquet file; every process
reads it anew, with two threads. Run with ``python benchmarks/capacity.py [JOBS]``; exits with 1 if
a goal is missed. Goals are of processor time, which other work on the machine stretches less than
the time of the clock. A fitted predictor has to be in use, and is loaded before the clock starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl
from capacity_stages import SINCE_S, UNTIL_S
from goals import Goal, all_kept

from predictor.site.capacity.jobs import of_file

JOBS, WHATIF_JOBS = 1_000_000, 100_000
GOAL_S, GOAL_BYTES = 30.0, 2 * 2**30
SAMPLE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "history.csv.gz"
STAGES = Path(__file__).resolve().with_name("capacity_stages.py")
THREADS = {"POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "2"}
RUNS = {"scan": "bare scan and sum", "report": "whole report, page"}


def write_jobs(path: Path, sample: pl.DataFrame, jobs: int, apart_s: float) -> None:
    """So many jobs: the sample again and again, each time so much later."""
    copies = []
    for copy in range(-(-jobs // sample.height)):
        moved = pl.col("submit_s", "start_s", "end_s") + copy * apart_s
        number = pl.concat_str("job_id", pl.lit(f"-{copy}")).alias("job_id")
        copies.append(sample.with_columns(moved, number))
    pl.concat(copies).head(jobs).write_parquet(path)


def measured(run: str, path: Path) -> dict[str, Any]:
    """What one process took."""
    done = subprocess.run(
        [sys.executable, str(STAGES), run, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | THREADS,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(name: str, found: dict[str, Any]) -> None:
    """The whole and its stages."""
    size = f"{found['bytes'] / 2**20:,.0f} MiB at most"
    print(f"{name}: {found['cpu_s']:.1f} s of processor, {found['seconds']:.1f} s, {size}")
    for stage in found["stages"]:
        print(
            f"  {stage['name']:24s} {stage['cpu_s']:6.2f} s of processor "
            f"{stage['seconds']:7.2f} s {stage['bytes'] / 2**20:7,.0f} MiB"
        )


def main() -> int:
    """Print what was reached; 1 where a goal is missed."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    goals = []
    sample = of_file(SAMPLE).frame.collect()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.parquet"
        write_jobs(path, sample, jobs, 1.0)
        print(f"{jobs:,} jobs, {path.stat().st_size / 2**20:.0f} MiB of Parquet")
        for run, name in RUNS.items():
            found = measured(run, path)
            show(name, found)
            size, spent_s = found["bytes"], found["cpu_s"]
            goals.append(Goal(f"{name}, processor s", f"{spent_s:.1f}", spent_s <= GOAL_S))
            goals.append(Goal(f"{name}, MiB", f"{size / 2**20:,.0f}", size <= GOAL_BYTES))
        # The sample's weeks one after the other, as loaded as they are.
        weeks, fewer = sample.filter(pl.col("end_s") <= UNTIL_S), min(jobs, WHATIF_JOBS)
        write_jobs(path, weeks, fewer, UNTIL_S - SINCE_S)
        show(f"what-if of {fewer:,} jobs", measured("whatif", path))
    return 0 if all_kept(goals) else 1


if __name__ == "__main__":
    sys.exit(main())
