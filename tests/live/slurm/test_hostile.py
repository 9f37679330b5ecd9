"""Nobody can blind it: hostile scripts and a daemon that is killed leave no job undecided."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from predictor.estimate.fitting import Fitted

from .cluster import SlurmCluster
from .daemon import DecisionDaemon, install_hook

HOSTILE = (
    "# x\n" * 20_000,
    "a" * 65_000,
    "$(" * 20_000,
    "python " + "--lr 0.1 " * 7_000,
    "cat <<E\n" + "x=1 " * 15_000,
    "export A=$A$A\n" * 4_000,
    "'\"`\\" * 15_000,
    "/" * 65_000,
)
GOOD = "#!/bin/sh\npython train.py --lr 0.1 --run {n} --epochs 90\n"
JOBS, WITHIN_S = 48, 60.0
HOOK_US = 50_000


@pytest.mark.usefixtures("fitted")
def test_every_job_is_decided_beside_hostile_scripts_and_a_daemon_that_is_killed(
    bench: SlurmCluster, fitted: Fitted, session_home: Path, user: str | None
) -> None:
    before = len(bench.log())
    with DecisionDaemon(bench, session_home, daemon={"deadline_ms": 20.0}) as daemon:
        install_hook(bench, daemon.socket)
        bench.run("scontrol", "setdebug", "debug")  # hooks without an answer are told there
        for n in range(JOBS):
            odd = "#!/bin/sh\n" + HOSTILE[n % len(HOSTILE)] + f"\n# {n}\n"
            bench.submit("--hold", "--gres=gpu:1", f"--job-name=odd{n}", script=odd, user=user)
            bench.submit("--hold", "--gres=gpu:1", f"--job-name=good{n}", script=GOOD.format(n=n))
            if n == JOBS // 2:
                daemon.kill()
            if n == JOBS // 2 + 4:
                daemon.start()
        bench.wait_until(lambda: _undecided(bench) == [], WITHIN_S)
    told = re.findall(r"precision-time: submit .* us=(\d+)", bench.log()[before:])
    spent = sorted(map(int, told))
    assert len(spent) == 2 * JOBS
    # of a machine of its own: 50 ms at most (benchmarks/slurm_hook.py); a busy one holds up anybody
    assert spent[len(spent) // 2] < 2 * HOOK_US
    assert spent[-1] < 20 * HOOK_US


def _undecided(bench: SlurmCluster) -> list[str]:
    lines = bench.run("squeue", "-h", "-t", "PD", "-O", "Name:20,admin_comment:300").stdout
    rows = lines.splitlines()
    assert len(rows) == 2 * JOBS
    return [row for row in rows if "later=" in row or "expected_s=" not in row]
