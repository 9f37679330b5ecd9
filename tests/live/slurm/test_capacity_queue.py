"""The queue of a real Slurm: jobs start in the order and at the times that slurmctld plans."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest
from click.testing import CliRunner

from predictor.cli.main import main

from .cluster import SlurmCluster

pytestmark = pytest.mark.usefixtures("limits_are_used")
LONG = "#!/bin/sh\nsleep 600\n"


def test_the_queue_starts_when_slurm_expects_it(here: SlurmCluster) -> None:
    one, both = ("-N1", "--gres=gpu:a100:4"), ("-N2", "--gres=gpu:a100:4")
    for minutes in (10, 20):
        runs = here.submit(*one, f"-t{minutes}", script=LONG).job_id
        here.wait(runs, ["RUNNING"])
    shapes = ((one, 30), (both, 10), (one, 15), (("--gpus=a100:2",), 60))
    waiting = [here.submit(*words, f"-t{minutes}", script=LONG).job_id for words, minutes in shapes]
    held = here.submit("-H", *one, script=LONG).job_id
    planned(here, waiting)
    done = CliRunner().invoke(main, ["capacity", "queue", "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    starts = {int(j["job_id"]): found["at_s"] + j["starts_s"]["median"] for j in found["queue"]}
    theirs = planned(here, waiting)
    assert starts.keys() == theirs.keys() == set(waiting)
    assert sorted(starts, key=starts.__getitem__) == sorted(theirs, key=theirs.__getitem__)
    for job_id, start_s in theirs.items():
        # slurmctld plans in steps of a minute
        assert starts[job_id] == pytest.approx(start_s, abs=90)
    assert {job["gpu_type"] for job in found["queue"]} == {"a100-sxm4-80gb"}
    assert [(aside["jobs"], aside["example"]) for aside in found["set_aside"]] == [(1, str(held))]
    [backlog] = found["backlog"]
    assert backlog["jobs"] == len(waiting)


def planned(here: SlurmCluster, jobs: Collection[int]) -> dict[int, int]:
    """When slurmctld plans to start them, once it has a plan: it makes one anew every second."""
    found: dict[int, int] = {}

    def whole() -> bool:
        found.update(expected(here))
        return found.keys() >= set(jobs)

    here.wait_until(whole)
    return found


def expected(here: SlurmCluster) -> dict[int, int]:
    """When slurmctld plans to start what waits."""
    lines = here.run(
        "squeue", "--start", "-h", "-o", "%i %S", env={"SLURM_TIME_FORMAT": "%s"}
    ).stdout.splitlines()
    found = (line.split() for line in lines)
    return {int(job_id): int(start) for job_id, start in found if start.isdecimal()}
