"""Replays a real log on a real slurmctld: order of submission, our order, order by true run times.

Run as ``python benchmarks/slurm_order.py profiles/samples/graham.csv.gz --skip 1480``. Three
clusters run the same jobs at the same time: `sleep` in place of training, one key a job: when it
was submitted, and 5 times a run time, at most a week. ``ours`` is the plugin as it ships: hook,
daemon, `history ingest slurm` and `calibrate` every 6 hours of the log. It starts with the jobs of
the log that had ended before the first.

The product's own times shrink with the log's. Slurm's limits are whole minutes. With ``--hour 20``
(seconds of ours) one is 3 hours, limits keep their proportion to run times, and it takes half an
hour. With ``--hour 5``, the fast way, an hour is one: limits are 12 times too long, and so is what
is expected of whom nothing is known.
"""

from __future__ import annotations

import csv
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from predictor.site.history.accounting_table import AccountingTable
from predictor.site.history.run import Run
from predictor.site.similar.past_runs import PastRun
from predictor.site.similar.request import JobRequest
from slurm_plugin.config import Order
from slurm_plugin.order import BASE, SINCE_S, delay_s
from tests.live.slurm import tables
from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.daemon import PROGRAM, DecisionDaemon, install_hook
from tests.live.slurm.installation import Installation
from tests.live.slurm.tables import Bench, NodeSpec, PartitionSpec

HOUR_S, ORDER = 3600.0, Order()
LEARN_HOURS = 6.0
ASK_S, LOOK_S, READY_S = 30.0, 2.0, 5.0
PER_NODE = 4
MINUTE_MOST_S = 3 * HOUR_S  # a longer minute would make most limits alike
Hours = NDArray[np.float64]
Told = tuple[str, float, float]  # a job, when it was asked for, and when it is expected to start
LEAST_S = 10.0  # shorter waits are lost in whole seconds
MODES = ("submission", "ours", "true")
# `: WORD` says nothing but which request it was; the run time is in the environment.
SCRIPT = '#!/bin/sh\n: {word}\nsleep "$RUN_S"\n'
KEY = f"    job_desc.site_factor = {BASE} - (os.time() - {SINCE_S}) - tonumber(job_desc.comment)\n"
# What every Python of our side begins with: the product's own times are shorter, as the log's.
SCALED = """
from predictor.site.similar import estimate, memory, past_runs, request
estimate.ORDER_LEAST_S /= {scale}
memory.GRACE_S /= {scale}
past_runs.BATCH_S /= {scale}
past_runs.STARTUP_S /= {scale}
request.ALIKE_S /= {scale}
"""
BY_TRUE = tables.ACCEPT_ALL.replace("    return", f"{KEY}    return", 1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How the time of the log becomes ours: ``scale`` seconds of it are one of ours."""

    scale: float

    @property
    def minute_s(self) -> float:
        """Seconds of the log in a minute of a limit: as many as pass, an hour where it is fast."""
        passing_s = 60.0 * self.scale
        return passing_s if passing_s <= MINUTE_MOST_S else HOUR_S

    @property
    def stretch(self) -> float:
        """How many times too long limits are; our key grows with their square root."""
        return 60.0 * self.scale / self.minute_s


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A job of the log; ``user`` is an account of this machine, times are those of the log."""

    run: PastRun
    user: str
    pace: Pace

    @property
    def limit_min(self) -> int:
        """Whole minutes: longer than it ran, as no job shall end by rounding."""
        limit_s = self.run.request.limit_s or 24 * HOUR_S
        return int(-(-max(limit_s, self.run.run_s) // self.pace.minute_s))

    @property
    def key_s(self) -> int:
        """How far it stands back by its true run time, in seconds of ours."""
        return round(delay_s(ORDER, self.run.run_s) / self.pace.scale)


@dataclass(frozen=True, slots=True)
class Replay:
    """Waits (n,) in hours of the log, in order of submission, when each job started, and was to."""

    waits: Hours
    starts: dict[str, float]
    told: list[Told]


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--skip", type=int, default=0, show_default=True, help="Jobs before the first.")
@click.option("--jobs", "count", type=int, default=185, show_default=True, help="How many.")
@click.option("--gpus", type=int, default=16, show_default=True, help="GPUs there are.")
@click.option("--hour", type=float, default=20.0, show_default=True, help="Seconds it takes.")
def main(table: Path, skip: int, count: int, gpus: int, hour: float) -> None:
    """Print the waits of each mode, in hours of the log."""
    pace = Pace(HOUR_S / hour)
    source = AccountingTable(table, "table")
    found = (PastRun.of(item) for item in source if isinstance(item, Run))
    runs = sorted((run for run in found if run is not None), key=lambda run: run.submit_s)
    fitting = [r for r in runs if r.request.gpus <= PER_NODE and r.request.limit_s and r.run_s > 0]
    chosen = fitting[skip : skip + count]
    accounts = _accounts(sorted({run.request.user for run in chosen}))
    jobs = [ReplayJob(run, accounts[run.request.user], pace) for run in chosen]
    before = [run for run in runs if run.end_s <= chosen[0].submit_s]
    tables.CPUS, tables.MEMORY_MB = 512, 16_000_000
    nodes = tuple(NodeSpec(f"g{n}", "a100", PER_NODE) for n in range(gpus // PER_NODE))
    bench = Bench(
        nodes=nodes,
        partitions=(PartitionSpec("gpu", tuple(n.name for n in nodes), default=True),),
        priority="multifactor",
        scheduler=(
            "bf_interval=2",
            "bf_resolution=1",
            "sched_interval=2",
            "batch_sched_delay=1",
        ),
    )
    click.echo(f"{len(jobs)} jobs, {len(before)} ended before, {gpus} GPUs, 1 h in {hour:g} s")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters = {m: stack.enter_context(SlurmCluster(Installation(), bench)) for m in MODES}
        clusters["true"].set_hook(BY_TRUE)
        begin_s = time.time() + 60.0
        ours = Ours(clusters["ours"], home, before, jobs, begin_s)
        stack.enter_context(ours.daemon)
        begin_s = time.time() + READY_S
        with ThreadPoolExecutor() as pool:
            replays = {m: pool.submit(_replay, clusters[m], jobs, begin_s, m) for m in MODES}
            while not all(each.done() for each in replays.values()):
                ours.learn()
                until_s = time.monotonic() + LEARN_HOURS * hour
                while time.monotonic() < until_s and not all(e.done() for e in replays.values()):
                    ours.ask()
                    time.sleep(min(ASK_S, LEARN_HOURS * hour))
        waits = {mode: each.result().waits for mode, each in replays.items()}
        replayed = replays["ours"].result()
    _print(waits)
    ours.told["sbatch"] = replayed.told
    for who, told in ours.told.items():
        _print_told(who, told, replayed.starts)


class Ours:
    """The plugin of one cluster: its daemon, and the history that it learns from."""

    def __init__(
        self,
        cluster: SlurmCluster,
        home: Path,
        before: Sequence[PastRun],
        jobs: Sequence[ReplayJob],
        begin_s: float,
    ) -> None:
        self.cluster = cluster
        accounts = {job.run.request.user: job.user for job in jobs}
        first_s, pace = jobs[0].run.submit_s, jobs[0].pace
        (home / "sitecustomize.py").write_text(SCALED.format(scale=pace.scale))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            (str(home), str(Path(__file__).resolve().parents[1]))
        )
        self._env = {**cluster.env, "PRECISION_TIME_HOME": str(home)}
        path = home / "before.csv"
        with path.open("w", newline="") as file:
            table = csv.writer(file)
            names = "job_id user account partition gpus cpus mem submit start end limit_s state"
            table.writerow(names.split())
            for number, run in enumerate(before):
                asked, end_s = run.request, begin_s + (run.end_s - first_s) / pace.scale
                submit_s = begin_s + (run.submit_s - first_s) / pace.scale
                limit_s = 60 * -(-asked.limit_s // pace.minute_s) if asked.limit_s else ""
                table.writerow(
                    [
                        -number - 1,
                        accounts.get(asked.user, asked.user),
                        asked.partition,
                        "gpu",
                        asked.gpus,
                        asked.cpus,
                        (asked.memory_bytes or 0) // 2**20,
                        submit_s,
                        end_s - run.run_s / pace.scale,
                        end_s,
                        limit_s,
                        run.ended.value,
                    ]
                )
        self._command("history", "ingest", "csv", str(path), "--cluster", "bench")
        self._command("calibrate")
        self.daemon = DecisionDaemon(
            cluster,
            home,
            order={
                "mode": "apply",
                "weight": ORDER.weight / pace.stretch**0.5,
                "longest_delay": f"{ORDER.longest_delay_s / pace.scale:g}s",
            },
            limits={"mode": "off"},
            placement={"mode": "off"},
        )
        install_hook(cluster, self.daemon.socket, cache_s=0.0)
        self.told: dict[str, list[Told]] = {"slurm eta": [], "squeue --start": []}

    def ask(self) -> None:
        """Keep when waiting jobs are expected to start, by us and by slurmctld."""
        found = json.loads(self._command("slurm", "eta", "--format", "json"))
        self.told["slurm eta"] += [
            (job["job_id"], found["at_s"], job["start"]["expected_s"])
            for job in found["jobs"]
            if job["state"] == "PD" and job["start"]
        ]
        text = self.cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%A %S").stdout
        rows = (line.split() for line in text.splitlines())
        self.told["squeue --start"] += [
            (job, time.time(), _seconds(at)) for job, at in rows if at != "N/A"
        ]

    def learn(self) -> None:
        """Learn from what has ended, as the timers of a site do every night."""
        self._command("history", "ingest", "slurm", "--since", "1h")
        self._command("calibrate")
        self.daemon.process.signal(signal.SIGHUP)

    def _command(self, *words: str) -> str:
        done = subprocess.run(
            [str(PROGRAM), *words], env=self._env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise click.ClickException(f"{' '.join(words)}: {done.stderr}")
        return done.stdout


def _replay(cluster: SlurmCluster, jobs: Sequence[ReplayJob], begin_s: float, mode: str) -> Replay:
    first_s, scale = jobs[0].run.submit_s, jobs[0].pace.scale
    asked_at: dict[str, float] = {}
    told: list[Told] = []
    for job in jobs:
        at_s = begin_s + (job.run.submit_s - first_s) / scale
        time.sleep(max(0.0, at_s - time.time()))
        asked = job.run.request
        submitted = cluster.submit(
            f"--gres=gpu:{asked.gpus}",
            "--nodes=1",
            f"--time={job.limit_min}",
            f"--account={asked.partition or 'none'}",
            f"--cpus-per-task={asked.cpus or 1}",
            f"--mem={(asked.memory_bytes or 0) // 2**20 or 1}",
            f"--comment={job.key_s if mode == 'true' else ''}",
            f"--export=RUN_S={job.run.run_s / scale:.3f}",
            script=SCRIPT.format(word=_word(asked)),
            user=job.user,
        )
        asked_at[str(submitted.job_id)] = at_s
        if mode == "ours":
            wait_s = _told_s("\n".join(submitted.messages))
            told.append((str(submitted.job_id), time.time(), time.time() + wait_s))
    while cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%A").stdout.split():
        time.sleep(LOOK_S)
    cluster.run("scancel", "--state=RUNNING", *asked_at, check=False)
    starts: dict[str, float] = {}
    while starts.keys() != asked_at.keys():
        time.sleep(LOOK_S)
        listed = ("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "--format=jobid,start,state")
        rows = [line.split("|") for line in cluster.run(*listed).stdout.splitlines()]
        starts = {job: _seconds(at) for job, at, _ in rows if at not in ("Unknown", "None")}
    if late := sum(state.startswith("TIMEOUT") for *_, state in rows):
        click.echo(f"{mode}: {late} jobs ended at their limit")
    waited = [starts[job_id] - at for job_id, at in asked_at.items()]
    return Replay(np.maximum(waited, 0.0) * scale / HOUR_S, starts, told)


def _told_s(message: str) -> float:
    """Of `starts in about 2 h 05 min`, 0 where no start is told."""
    said = re.search(r"starts in about ([^,;\n]+)", message)
    words = re.findall(r"(\d+(?:\.\d+)?) (min|h|s)", said[1] if said else "")
    return sum(float(number) * {"h": HOUR_S, "min": 60.0, "s": 1.0}[unit] for number, unit in words)


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _word(asked: JobRequest) -> str:
    digest = sha256(repr(asked).encode()).digest()
    return "".join(chr(ord("a") + byte % 26) for byte in digest[:12])


def _accounts(users: Sequence[str]) -> dict[str, str]:
    """An account of this machine for each user of the log."""
    mine = pwd.getpwuid(os.geteuid()).pw_name
    names = [one.pw_name for one in pwd.getpwall() if one.pw_name not in (mine, "slurm")]
    if len(users) > len(names):
        raise click.ClickException(f"{len(users)} users; this machine has {len(names)} accounts")
    return dict(zip(users, names, strict=False))


def _print(waits: dict[str, Hours]) -> None:
    base = waits["submission"]
    for mode in MODES:
        found = waits[mode]
        click.echo(
            f"{mode:12} mean {found.mean():6.2f} h ({found.mean() / base.mean() - 1:+.0%})  "
            f"median {np.median(found):6.2f}  95 % {np.quantile(found, 0.95):6.1f}  "
            f"longest {found.max():6.1f}"
        )
    gained = base.mean() - waits["true"].mean()
    share = (base.mean() - waits["ours"].mean()) / gained if gained > 0 else float("nan")
    click.echo(f"ours brings {share:.0%} of what true run times bring")


def _print_told(who: str, told: Sequence[Told], starts: dict[str, float]) -> None:
    waits = [(starts[job] - at, expected - at) for job, at, expected in told if job in starts]
    ratios = [max(said, 0.0) / real for real, said in waits if real >= LEAST_S]
    near = np.mean([0.5 <= ratio <= 2.0 for ratio in ratios]) if ratios else float("nan")
    click.echo(f"{who:14} {len(ratios):5} expected starts, {near:.0%} within a factor of 2")


if __name__ == "__main__":
    main()
