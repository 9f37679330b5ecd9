"""The use of it all: the same queue with and without filled limits, and who starts earlier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from .cluster import SlurmCluster
from .test_placing import settled
from .test_submit import told

SHORT_JOB = "--comment=model=resnet50 precision=amp steps=500 batch=64"
FIRST_LIMIT_MIN = 60
SHORT_JOBS = 4


@dataclass(frozen=True, slots=True)
class Ran:
    """One job in accounting; times in seconds of the Unix clock."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Queue:
    """One job on the first of two nodes, one that waits for both, and short ones behind it."""

    running: Ran
    blocked: Ran
    short: tuple[Ran, ...]


def test_short_jobs_start_before_a_blocked_one_and_do_not_delay_it(
    deciding: object, bench: SlurmCluster, user: str | None, policy: Callable[..., None]
) -> None:
    filled = _run_queue(bench, user, filled=True)
    policy(limits={"mode": "off"})
    default = _run_queue(bench, user, filled=False)
    assert all(job.start_s >= default.blocked.start_s for job in default.short), default
    assert all(job.start_s < filled.running.end_s for job in filled.short), filled
    assert all(job.start_s < filled.blocked.start_s for job in filled.short), filled
    idle_before_blocked_s = filled.blocked.start_s - filled.running.end_s
    assert idle_before_blocked_s <= default.blocked.start_s - default.running.end_s + 15


def _run_queue(bench: SlurmCluster, user: str | None, *, filled: bool) -> Queue:
    """Queue the jobs on the two V100 nodes; what accounting says of them once all have ended.

    The first one runs until short jobs have ended behind it, or wait as the scheduler says.
    """
    over = bench.work / f"over-{filled}"
    running = bench.submit(
        "--gres=gpu:v100:4",
        "--nodelist=v1",
        f"--time={FIRST_LIMIT_MIN}",
        script=f"#!/bin/sh\nwhile [ ! -e {over} ]; do sleep 0.1; done\n",
        user=user,
    )
    bench.wait(running.job_id, ["RUNNING"])
    blocked = bench.submit(
        "--gres=gpu:v100:4", "--nodes=2", "--time=5", script="#!/bin/sh\nsleep 2\n", user=user
    )
    short = [
        bench.submit("--gres=gpu:v100:1", SHORT_JOB, script="#!/bin/sh\nsleep 3\n", user=user)
        for _ in range(SHORT_JOBS)
    ]
    if filled:
        assert all(told("\n".join(job.messages)) < FIRST_LIMIT_MIN for job in short)
    for job in short:
        if filled:
            bench.wait(job.job_id)
        else:
            bench.wait_until(lambda n=job.job_id: settled(bench, [n]))
    over.touch()
    ids = [job.job_id for job in (running, blocked, *short)]
    for job_id in ids:
        assert bench.wait(job_id, timeout_s=120)["JobState"] == "COMPLETED"
    first, second, *rest = (_ran(bench, job_id) for job_id in ids)
    return Queue(first, second, tuple(rest))


def _ran(bench: SlurmCluster, job_id: int) -> Ran:
    recorded = bench.sacct(job_id, "start", "end")
    return Ran(*(datetime.fromisoformat(recorded[name]).timestamp() for name in ("start", "end")))
