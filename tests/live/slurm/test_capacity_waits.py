"""What jobs of a real Slurm wait for besides GPUs: the replay starts them as slurmctld does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any

import pytest
from click.testing import CliRunner

from predictor.cli.main import main

from .cluster import SlurmCluster
from .test_capacity_queue import LONG, planned

pytestmark = pytest.mark.usefixtures("limits_are_used")
SHORT = "#!/bin/sh\nsleep 2\n"
ONE = "--gres=gpu:p100:1"
BOTH = ("-N2", "--gres=gpu:a100:4")


@pytest.fixture
def reserve(here: SlurmCluster) -> Iterator[Any]:
    """Reserve nodes for root; the reservation goes with the test."""
    names: list[str] = []

    def make(name: str, *words: str) -> None:
        here.run(
            "scontrol", "create", "reservation", f"reservationname={name}", "users=root", *words
        )
        names.append(name)

    yield make
    here.run("scancel", *here.run("squeue", "-h", "-o", "%A").stdout.split(), check=False)
    here.wait_until(lambda: not here.run("squeue", "-h").stdout)
    for name in names:
        here.wait_until(lambda name=name: deleted(here, name))


def deleted(here: SlurmCluster, name: str) -> bool:
    """False while slurmctld still finds it in use."""
    return not here.run("scontrol", "delete", f"reservation={name}", check=False).returncode


def queue() -> dict[str, Any]:
    done = CliRunner().invoke(main, ["capacity", "queue", "--format", "json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def starts(found: dict[str, Any]) -> dict[str, float]:
    return {job["job_id"]: found["at_s"] + job["starts_s"]["median"] for job in found["queue"]}


def waits(found: dict[str, Any]) -> dict[str, str]:
    return {job["job_id"]: job["waits_for"] for job in found["queue"]}


def left_out(found: dict[str, Any]) -> dict[str, str]:
    return {aside["example"]: aside["reason"] for aside in found["set_aside"]}


def really_started(here: SlurmCluster, job_ids: Iterable[str]) -> dict[str, int]:
    """When those of these jobs started that accounting knows of."""
    lines = here.run(
        "sacct",
        "-X",
        "-n",
        "-P",
        "--format=jobid,start",
        f"--jobs={','.join(job_ids)}",
        env={"SLURM_TIME_FORMAT": "%s"},
    ).stdout.splitlines()
    found = (line.split("|") for line in lines)
    return {job_id: int(start) for job_id, start in found if start.isdecimal()}


def test_jobs_start_in_the_order_in_which_they_really_do(here: SlurmCluster) -> None:
    until = here.work / "go"
    first = here.submit(
        "-t9", ONE, script=f"#!/bin/sh\nwhile [ ! -e {until} ]; do sleep 0.1; done\n"
    ).job_id
    here.wait(first, ["RUNNING"])
    second = here.submit("-t1", ONE, f"-dafterok:{first}", script=SHORT).job_id
    third = here.submit("-t1", ONE, f"-dafterany:{second}", script=SHORT).job_id
    either = here.submit("-t1", ONE, f"-dafterany:{first}?afterany:{third}", script=SHORT).job_id
    array = here.submit("-t1", ONE, f"-dafterok:{first}", "--array=0-2%1", script=SHORT).job_id
    same = here.submit("-t1", ONE, "-Jsame", f"-dafterok:{second}", script=SHORT).job_id
    alone = here.submit("-t1", ONE, "-Jsame", "-dsingleton", script=SHORT).job_id
    found = queue()
    tasks = [f"{array}_{task}" for task in range(3)]
    assert waits(found) == {
        str(second): f"end of {first}",
        str(third): f"end of {second}",
        str(either): f"end of {first} or end of {third}",
        str(same): f"end of {second}",
        str(alone): "end of others of this name",
        **dict.fromkeys(tasks, f"end of {first}; its array: 1 at once"),
    }
    until.touch()
    here.wait_until(lambda: not here.run("squeue", "-h").stdout, timeout_s=240)
    until.unlink()
    ours = starts(found)
    theirs: dict[str, int] = {}

    def all_known() -> bool:
        theirs.update(really_started(here, ours))
        return ours.keys() <= theirs.keys()

    here.wait_until(all_known)
    for one, other in permutations(ours, 2):
        if ours[one] < ours[other] - 30:  # a limit is a minute
            assert theirs[one] < theirs[other], (one, other, ours, theirs)


def test_a_time_to_begin_and_reasons_that_are_not_simulated(here: SlurmCluster) -> None:
    late = here.submit(ONE, "-t3", "--begin=now+1hour", script=LONG).job_id
    too_long = here.submit(ONE, "-pshort", "-t60", script=LONG).job_id
    held = here.submit("-H", ONE, script=LONG).job_id
    behind = here.submit(ONE, f"-dafterany:{held}", script=LONG).job_id
    to_fail = here.submit(ONE, f"-dafternotok:{held}", script=LONG).job_id
    cpu = here.submit("-pcpu", "-t7", script=LONG).job_id
    here.wait(cpu, ["RUNNING"])
    after_cpu = here.submit(ONE, f"-dafterany:{cpu}", script=LONG).job_id
    planned(here, [late])
    here.wait_until(lambda: here.job(too_long)["Reason"] == "PartitionTimeLimit")
    began = time.strptime(here.job(cpu)["StartTime"], "%Y-%m-%dT%H:%M:%S")
    found = queue()
    told, when = waits(found), starts(found)
    assert when[str(late)] == pytest.approx(planned(here, [late])[late], abs=2)
    assert told[str(late)].endswith("UTC")
    assert told[str(after_cpu)] == f"end of {cpu} (no GPUs: by its limit)"
    assert when[str(after_cpu)] == pytest.approx(time.mktime(began) + 7 * 60, abs=30)
    assert left_out(found) == {
        str(held): "it is held until somebody releases it",
        str(too_long): "its limit is longer than its partition allows",
        str(behind): "it waits for a job that is left out",
        str(to_fail): "it waits for a job to fail, which is not foreseen",
    }


def test_a_reservation_keeps_its_nodes(here: SlurmCluster, reserve: Any) -> None:
    reserve("maint", "starttime=now+15minutes", "duration=60", "nodes=a1,a2")
    reserve("cores", "starttime=now", "duration=60", "nodes=v1", "corecnt=4")
    runs = here.submit(*BOTH, "-t5", script=LONG).job_id
    here.wait(runs, ["RUNNING"])
    before = here.submit(*BOTH, "-t6", script=LONG).job_id
    after = here.submit(*BOTH, "-t30", script=LONG).job_id
    inside = here.submit("--reservation=maint", "--gres=gpu:a100:1", "-t3", script=LONG).job_id
    planned(here, [before, after])
    found = queue()
    ours, theirs = starts(found), planned(here, [before, after])
    for job_id in (before, after):
        # slurmctld plans in steps of a minute
        assert ours[str(job_id)] == pytest.approx(theirs[job_id], abs=90)
    assert ours[str(after)] > found["at_s"] + 60 * 60
    assert list(left_out(found)) == [str(inside)]
    cores, maint = found["notes"]
    taken = "4 x v100-sxm2-16gb takes some cores of its nodes: not simulated."
    assert cores == f"Reservation cores of {taken}"
    assert maint.startswith("Reservation maint keeps 8 x a100-sxm4-80gb from ")


def test_what_runs_in_a_reservation_takes_nothing_from_others(
    here: SlurmCluster, reserve: Any
) -> None:
    reserve("course", "starttime=now", "duration=60", "nodes=v1")
    inside = here.submit("--reservation=course", "--gres=gpu:v100:4", "-t9", script=LONG).job_id
    runs = here.submit("--gres=gpu:v100:4", "-t9", script=LONG).job_id
    for job_id in (inside, runs):
        here.wait(job_id, ["RUNNING"])
    small = here.submit("--gres=gpu:v100:1", "-t9", script=LONG).job_id
    wide = here.submit("-N2", "--gres=gpu:v100:4", "-t9", script=LONG).job_id
    planned(here, [small, wide])
    ours, theirs = starts(queue()), planned(here, [small, wide])
    for job_id in (small, wide):
        assert ours[str(job_id)] == pytest.approx(theirs[job_id], abs=90)
