"""A bad day on a real Slurm: many jobs, a busy host, hostile scripts, a daemon killed twice.

Run as ``python benchmarks/slurm_load.py``; SLURM_PREFIX as in slurm_hook.py. Distinct jobs are
submitted in turns with ones for an empty hook, while another user sends scripts meant to hurt, and
a third thousands of jobs as fast as sbatch takes them.
Exits with 1 where a submit fails, a job stays undecided, or a hook takes too long.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from goals import Goal, all_kept, home_of_run, percentile
from slurm_bench.hooks import Hooks
from slurm_bench.jobs import SCRIPT, TRES, Jobs
from slurm_hook import BENCH, REFRESH_S

from slurm_plugin.config import Daemon
from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.daemon import DecisionDaemon
from tests.live.slurm.installation import Installation
from tests.live.slurm.test_hostile import HOSTILE

BINARY = random.Random(0).randbytes(60_000).replace(b"\0", b"\1").replace(b"\r", b"\1")
WORDS = "srun python 学習.py --名前 値\n" * 1_500
SCRIPTS = (
    *HOSTILE,
    "#PT " + "key= " * 12_000,
    'bash "$0" "$@"; sbatch $0; . $BASH_SOURCE\n' * 1_200,  # it calls itself
    *(WORDS.encode(name, "replace").decode("latin-1") for name in ("utf-8", "shift-jis", "koi8-r")),
    "srun python train.py --lr 0.1\n" * 1_000,
    "if true; then (" * 4_000,
    "# x\n" * 900_000,  # near max_script_size
    BINARY.decode("latin-1"),
)
WITHIN_S, MOST_MS = 60.0, 50.0
QUANTILES = (0.5, 0.9, 0.99, 0.999)
# As shipped, which a bench of tests replaces.
SHIPPED = Daemon().model_dump(include={"deadline_ms", "prediction_ms", "log_format"})
UNIT_NICE = -5  # of the daemon, as its unit has it; root alone may
AWAY_S, LOOK_S = 5.0, 1.0
STRANGER, FLOODER = "nobody", "games"
ARRAY = "--array=0-999"  # the most that MaxArraySize allows as Slurm is shipped
_killing = threading.Lock()


@dataclass
class Day:
    """Seconds of each sbatch by kind, failures, and when each job came and was decided."""

    sbatch_s: dict[str, list[float]] = field(default_factory=lambda: {"empty": [], "ours": []})
    failed: list[str] = field(default_factory=list)
    sent_s: dict[str, float] = field(default_factory=dict)
    decided_s: dict[str, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)


def submit(
    cluster: SlurmCluster,
    day: Day,
    name: str,
    *argv: str,
    script: str | None = None,
    user: str | None = None,
) -> float:
    """Seconds that one sbatch took."""
    began_s = time.perf_counter()
    options = ("--hold", "--parsable", "--output=/dev/null", f"--job-name={name}")
    done = cluster.run("sbatch", *options, *argv, check=False, input=script, user=user)
    taken_s = time.perf_counter() - began_s
    if done.returncode:
        day.failed.append(f"{name}: {done.stderr.strip()}")
    elif not name.startswith("empty"):
        day.sent_s[name] = time.monotonic()
    return taken_s


def hurt(cluster: SlurmCluster, day: Day) -> None:
    """Hostile scripts of another user, one after the other."""
    number = 0
    while not day.over.wait(0.1):
        text = f"#!/bin/sh\n{SCRIPTS[number % len(SCRIPTS)]}\n# {number}\n"
        more = (ARRAY,) if number % 10 == 9 else ()
        submit(cluster, day, f"odd-{number}", f"--gres={TRES}", *more, script=text, user=STRANGER)
        number += 1


def flood(cluster: SlurmCluster, day: Day, count: int) -> None:
    """So many jobs of a third user, each another, without a pause."""
    for number in range(count):
        if day.over.is_set():
            return
        text = f"#!/bin/sh\npython train.py --seed {number} --epochs {number % 90 + 1}\n"
        submit(cluster, day, f"flood-{number}", f"--gres={TRES}", script=text, user=FLOODER)


def look(cluster: SlurmCluster, day: Day) -> None:
    """Keep when each job was first seen decided."""
    listed = cluster.run("squeue", "-h", "-t", "PD", "-O", "Name:20,admin_comment:400").stdout
    now_s = time.monotonic()
    for line in listed.splitlines():
        name, _, mark = line.partition(" ")
        if "v=1" in mark and "later=" not in mark:
            day.decided_s.setdefault(name, now_s)


def watch(cluster: SlurmCluster, day: Day) -> None:
    """The same until the day is over and all are decided, or have waited too long."""
    while not day.over.wait(LOOK_S):
        look(cluster, day)
    until_s = time.monotonic() + 2 * WITHIN_S
    while day.sent_s.keys() - day.decided_s.keys() and time.monotonic() < until_s:
        time.sleep(LOOK_S)
        look(cluster, day)


def kill(daemon: DecisionDaemon) -> None:
    """SIGKILL, and a start as systemd makes it, some seconds later."""
    with _killing:
        daemon.kill()
        time.sleep(AWAY_S)
        daemon.start()


@contextlib.contextmanager
def busy(load: float) -> Iterator[None]:
    """Processes that bring the host to a load, the ones there counted."""
    more = max(0, round(load - os.getloadavg()[0]))
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(more)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.kill()


def _spin() -> None:
    while True:
        math.sqrt(2.0)


def spend(cluster: SlurmCluster, daemon: DecisionDaemon, count: int, floods: int) -> Day:
    """One day of so many jobs of ours; one in ten has a shape that was never predicted."""
    day, jobs = Day(), Jobs()
    threads = [threading.Thread(target=to_do, args=(cluster, day)) for to_do in (hurt, watch)]
    threads.append(threading.Thread(target=flood, args=(cluster, day, floods)))
    for thread in threads:
        thread.start()
    for number in range(count):
        (job,) = jobs.of("new" if number % 10 == 9 else "known", 1)
        asked = {
            "ours": (job.name, f"--gres={TRES}", f"--comment={job.comment}"),
            "empty": (f"empty-{number}",),
        }
        for kind in ("ours", "empty") if number % 2 else ("empty", "ours"):
            day.sbatch_s[kind].append(submit(cluster, day, *asked[kind], str(SCRIPT)))
        if number in (count // 3, 2 * count // 3):
            threads.append(threading.Thread(target=kill, args=(daemon,)))
            threads[-1].start()
    day.over.set()
    for thread in threads:
        thread.join()
    return day


def figures(samples: list[float]) -> str:
    """Median, 99th percentile and the most, in ms."""
    return (
        f"p50 {statistics.median(samples):6.1f}  p99 {percentile(samples, 0.99):6.1f}  "
        f"max {max(samples):6.1f} ms"
    )


def report(day: Day, inside_ms: Mapping[str, list[float]]) -> bool:
    """Print everything; True if every goal is kept."""
    ms = {kind: [1e3 * s for s in taken] for kind, taken in day.sbatch_s.items()}
    ours = [one for kind, taken in inside_ms.items() if kind != "empty" for one in taken]
    more = [a - b for a, b in zip(ms["ours"], ms["empty"], strict=True)]
    print(f"sbatch, ours            {figures(ms['ours'])}")
    print(f"sbatch, empty hook      {figures(ms['empty'])}")
    print(f"ours - empty, in pairs  {figures(more)}")
    again = [a - b for a, b in itertools.pairwise(ms["empty"])]
    print(
        f"  pairs apart by > {MOST_MS:g} ms: ours slower {sum(m > MOST_MS for m in more)}, "
        f"empty slower {sum(m < -MOST_MS for m in more)}; "
        f"empty than the empty one before {sum(m > MOST_MS for m in again)}"
    )
    apart = [percentile(ms["ours"], q) - percentile(ms["empty"], q) for q in QUANTILES]
    listed = "  ".join(f"p{100 * q:g} {a:+.1f}" for q, a in zip(QUANTILES, apart, strict=True))
    print(f"ours - empty, quantiles {listed} ms")
    for kind, taken in sorted(inside_ms.items()):
        print(f"inside the hook, {kind:7}{figures(taken)}  of {len(taken)}")
    waits = [day.decided_s.get(job, math.inf) - sent for job, sent in day.sent_s.items()]
    waits_of = dict(zip(day.sent_s, waits, strict=True))
    for who in ("known", "new", "odd", "flood"):
        found = [wait for job, wait in waits_of.items() if job.startswith(who)] or [math.nan]
        print(
            f"{who:7} seen decided after p50 {statistics.median(found):.1f}  "
            f"max {max(found):.1f} s  of {len(found)}"
        )
    late = sum(wait > WITHIN_S for wait in waits)
    kept = all_kept(
        [
            Goal(f"decided within {WITHIN_S:g} s", f"all but {late} of {len(waits)}", not late),
            Goal(f"hook at most {MOST_MS:g} ms", f"{max(ours):.1f} ms", max(ours) <= MOST_MS),
            Goal("no failed submit", f"{len(day.failed)} failed", not day.failed),
        ]
    )
    for words in day.failed[:5]:
        print(f"  {words}")
    return kept


@click.command()
@click.option("--jobs", "count", type=int, default=2000, show_default=True, help="Of ours.")
@click.option("--floods", type=int, default=5000, show_default=True, help="Most of the third user.")
@click.option("--load", type=float, default=5.0, show_default=True, help="Of the host.")
def main(count: int, floods: int, load: float) -> None:
    """Submit so many distinct jobs at this load; say how they fared."""
    prefix = os.environ.get("SLURM_PREFIX")
    installation = Installation(Path(prefix) if prefix else None)
    if reason := installation.missing():
        raise click.ClickException(f"nothing was measured: {reason}")
    with (
        home_of_run() as home,
        SlurmCluster(installation, BENCH) as cluster,
        DecisionDaemon(
            cluster, home, UNIT_NICE, daemon=SHIPPED, slurm={"refresh_s": REFRESH_S}
        ) as daemon,
        busy(load),
    ):
        hooks = Hooks(cluster, daemon.socket, daemon.socket)
        day = spend(cluster, daemon, count, floods)
        inside_ms: dict[str, list[float]] = {}
        for call in hooks.calls():
            inside_ms.setdefault(call.kind, []).append(call.duration_us / 1e3)
        year, month = installation.version
        load_now = os.getloadavg()[0]
        print(f"Slurm {year}.{month:02}, {os.cpu_count()} cores, load {load_now:.1f} at the end")
        kept = report(day, inside_ms)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
