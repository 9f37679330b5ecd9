"""Measures a capacity report of a million jobs against a bare scan of the same file, in one run.

The shipped sample is repeated, each copy shifted by a second, into a Parquet file; every process
reads it anew. Run with ``python benchmarks/capacity.py [JOBS]``; exits with 1 if a goal is missed.
A fitted predictor has to be in use, and is loaded before the clock starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from goals import Goal

JOBS = 1_000_000
GOAL_S, GOAL_BYTES = 30.0, 2 * 2**30
SAMPLE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "history.csv.gz"
SINCE_S, UNTIL_S = 1_736_121_600.0, 1_740_960_000.0
_MEASURE = """
import json, resource, sys, time
import polars as pl
path = sys.argv[1]
{prepare}
began, worked = time.perf_counter(), time.process_time()
{run}
print(json.dumps({{
    "seconds": time.perf_counter() - began,
    "cpu_s": time.process_time() - worked,
    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "result": result,
}}))
"""
BARE = _MEASURE.format(
    prepare="",
    run="hours = pl.col('gpus') * (pl.col('end_s') - pl.col('start_s'))\n"
    "result = pl.scan_parquet(path).group_by('gpu_type').agg(hours.sum()).collect().height",
)
_REPORT = """
from pathlib import Path
from predictor.capacity.report import make_report
from predictor.capacity.report_data import Period
from predictor.capacity.source import of_file
from predictor.store import load_predictor
period = Period(since_s={since}, until_s={until})
predictor = load_predictor(None, lambda stage, share: None) if {predicts} else None
"""
_RUN = "result = make_report(of_file(Path(path)), period, predictor).origin.jobs"


def write_jobs(path: Path, jobs: int) -> None:
    """So many jobs of the sample's shape."""
    import polars as pl

    from predictor.capacity.source import of_file

    sample = of_file(SAMPLE).frame.collect()
    copies = []
    for copy in range(-(-jobs // sample.height)):
        moved = [(pl.col(name) + copy).alias(name) for name in ("submit_s", "start_s", "end_s")]
        number = pl.concat_str("job_id", pl.lit(f"-{copy}")).alias("job_id")
        copies.append(sample.with_columns(*moved, number))
    pl.concat(copies).head(jobs).write_parquet(path)


def measured(program: str, path: Path) -> dict[str, Any]:
    """What one process took."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Print what was reached; 1 where a goal is missed."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.parquet"
        write_jobs(path, jobs)
        bare = measured(BARE, path)
        print(f"{jobs:,} jobs, {path.stat().st_size / 2**20:.0f} MiB of Parquet")
        print(f"bare scan and sum: {bare['seconds']:.2f} s, {bare['bytes'] / 2**20:,.0f} MiB")
        goals = []
        for name, predicts in (("facts and forecast", False), ("whole report", True)):
            prepare = _REPORT.format(since=SINCE_S, until=UNTIL_S, predicts=predicts)
            found = measured(_MEASURE.format(prepare=prepare, run=_RUN), path)
            seconds, size = found["seconds"], found["bytes"]
            print(f"{name}: {seconds:.1f} s ({found['cpu_s']:.1f} s of CPU), "
                  f"{size / 2**20:,.0f} MiB, "
                  f"{seconds / bare['seconds']:.0f} times the bare scan")  # fmt: skip
            goals.append(Goal(f"{name}, seconds", f"{seconds:.1f}", seconds <= GOAL_S))
            goals.append(Goal(f"{name}, MiB", f"{size / 2**20:,.0f}", size <= GOAL_BYTES))
    for goal in goals:
        print(f"{'kept  ' if goal.kept else 'MISSED'}  {goal.name}: {goal.reached}")
    return 0 if all(goal.kept for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
