"""Measures what the submit hook costs slurmctld, against hooks that do less, in one run.

A real Slurm is started in a temporary directory, with the hook and the decision daemon as they are
shipped. Run with ``make bench-slurm``; exits with 1 if a goal is missed, and says so where Slurm,
gcc or the headers of libslurm are missing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from goals import all_kept, home_of_run
from slurm_bench import client
from slurm_bench.client import Client
from slurm_bench.figures import LABELS, Figures, goals, loss, show
from slurm_bench.hooks import Hooks
from slurm_bench.jobs import SCRIPT, TRES, Job, Jobs

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.daemon import DecisionDaemon
from tests.live.slurm.installation import Installation
from tests.live.slurm.processes import Daemon
from tests.live.slurm.tables import Bench

ROUNDS = 3
JOBS = 500  # of one kind, round and number of threads
THREADS = (1, 4)
SBATCHES = 300  # of one kind
TIMED = tuple(kind for kind in LABELS if kind != "none")
DO_NOTHING = Path(client.__file__).with_name("do_nothing.py")
# slurmctld's own work in the background would hide what a hook costs: intervals as by default.
BENCH = Bench(
    accounting=False, scheduler=("bf_interval=30",), lines=("MaxJobCount=100000", "MinJobAge=2")
)
# A deadline and a log as by default. New predictions are waited for, as in the tests, to show them.
DAEMON = {"deadline_ms": 20.0, "log_format": "json"}
REFRESH_S = 15.0


class Measurement:
    """One bench with all hooks, and the figures so far."""

    def __init__(self, cluster: SlurmCluster, hooks: Hooks) -> None:
        self.cluster = cluster
        self.hooks = hooks
        self.client = Client(cluster)
        self.jobs = Jobs()
        self.figures = Figures(rates={threads: {} for threads in THREADS})

    def warm_up(self) -> None:
        """What is done once is part of no figure; ``known`` shapes are known from here on."""
        for kind in TIMED:
            self.client.submit(self.jobs.of(kind, 20), 1)
        self.cluster.clear()
        self.hooks.calls()

    def commands(self) -> None:
        """Single sbatch commands, the hooks in turns."""
        for _ in range(SBATCHES):
            for kind in TIMED:
                (job,) = self.jobs.of(kind, 1)
                taken_ms = 1e3 * self._sbatch(job)
                self.figures.sbatch_ms.setdefault(kind, []).append(taken_ms)
        self._keep_calls(self.figures.inside_ms)
        self.cluster.clear()

    def rates(self) -> None:
        """Rounds of many jobs by libslurm, the hooks in turns."""
        for _ in range(ROUNDS):
            for threads in THREADS:
                for kind in TIMED:
                    self._rate(kind, threads)
            with self.hooks.off():
                for threads in THREADS:
                    self._rate("none", threads)

    def _rate(self, kind: str, threads: int) -> None:
        taken_s = self.client.submit(self.jobs.of(kind, JOBS), threads)
        self.figures.rates[threads].setdefault(kind, []).append(JOBS / taken_s)
        self._keep_calls(self.figures.crowded_ms if threads == 1 else {})
        self.cluster.clear()

    def _sbatch(self, job: Job) -> float:
        argv = [
            "sbatch",
            "--hold",
            "--parsable",
            "--output=/dev/null",
            f"--job-name={job.name}",
            f"--comment={job.comment}",
            f"--gres={TRES}",
            str(SCRIPT),
        ]
        program = self.cluster.installation.program("sbatch")
        start = time.perf_counter()
        subprocess.run(
            [program, *argv[1:]],
            env=self.cluster.env,
            cwd=self.cluster.work,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - start

    def _keep_calls(self, times_ms: dict[str, list[float]]) -> None:
        for call in self.hooks.calls():
            times_ms.setdefault(call.kind, []).append(call.duration_us / 1e3)
            self.figures.answered.setdefault(call.kind, []).append(call.answered)


def measured(installation: Installation, home: Path) -> Figures:
    """All figures of one Slurm."""
    with (
        SlurmCluster(installation, BENCH) as cluster,
        _do_nothing(cluster) as bare,
        DecisionDaemon(cluster, home, daemon=DAEMON, slurm={"refresh_s": REFRESH_S}) as ours,
    ):
        measurement = Measurement(cluster, Hooks(cluster, ours.socket, bare))
        measurement.warm_up()
        measurement.commands()
        measurement.rates()
        return measurement.figures


@contextmanager
def _do_nothing(cluster: SlurmCluster) -> Iterator[Path]:
    path = cluster.root / "bare.sock"
    daemon = Daemon("do-nothing", cluster.root / "log" / "do-nothing.out")
    daemon.start([sys.executable, str(DO_NOTHING), str(path)], cluster.env)
    try:
        daemon.wait_until(path.exists)
        yield path
    finally:
        daemon.stop()


def report(installation: Installation, figures: Figures, loads: tuple[float, float]) -> bool:
    """Print everything; True if every goal is kept."""
    year, month = installation.version
    print(f"Slurm {year}.{month:02}, {os.cpu_count()} cores, load {loads[0]:.1f} to {loads[1]:.1f}")
    show(figures)
    added = loss(figures.sbatch_ms, "known", "empty")
    empty_ms = statistics.median(figures.sbatch_ms["empty"])
    interval = f"{added.low_ms:+.2f} to {added.high_ms:+.2f}"
    print(f"sbatch, ours - empty: {added.median_ms:+.2f} ms ({interval}) of {empty_ms:.2f} ms\n")
    return all_kept(goals(figures))


def main() -> int:
    """Measure the Slurm of the machine, or the one below SLURM_PREFIX."""
    prefix = os.environ.get("SLURM_PREFIX")
    installation = Installation(Path(prefix) if prefix else None)
    reason = installation.missing() or client.missing(installation)
    if reason:
        print(f"skipped, nothing was measured: {reason}")
        return 0
    before = os.getloadavg()[0]
    with home_of_run() as home:
        figures = measured(installation, home)
    return 0 if report(installation, figures, (before, os.getloadavg()[0])) else 1


if __name__ == "__main__":
    sys.exit(main())
