"""Slurm's data as a real cluster gives it, whatever its users wrote."""

from __future__ import annotations

import random
import time

import pytest

from predictor.site.history.run import EndedJob, JobState
from slurm_plugin.cluster import Cluster
from slurm_plugin.config import Slurm
from slurm_plugin.sources.accounting import streamed
from slurm_plugin.sources.choose import open_source
from slurm_plugin.sources.commands import Commands
from slurm_plugin.sources.text import SlurmSource, take

from .cluster import SlurmCluster

LETTERS = "ab |,;=:'\"`$(){}[]<>\\/%~@\t\n\x1f\x1eé☃"
PERIOD_S = 3600
PATIENCE_S = 60.0


@pytest.fixture
def here(bench: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The bench, which this process's own commands reach too."""
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    return bench


def awkward_texts(count: int) -> list[str]:
    chance = random.Random(20)
    return ["x" + "".join(chance.choices(LETTERS, k=chance.randint(1, 40))) for _ in range(count)]


def settled(first: SlurmSource, second: SlurmSource) -> tuple[Cluster, Cluster]:
    """Both views of one moment: the first did not change while the second was taken."""
    for _ in range(20):
        before, other, after = take(first), take(second), take(first)
        if (before.nodes, before.queue) == (after.nodes, after.queue):
            return after, other
    pytest.fail("the cluster did not stay the same for three views")


def test_json_and_text_give_one_view_whatever_users_write(here: SlurmCluster) -> None:
    texts = awkward_texts(20)
    ids = [here.submit("-H", "--gres=gpu:2", "-J", t, "--comment", t).job_id for t in texts]
    here.submit("-H", "--array=1-9:2%2", "--gpus=4")
    here.wait(here.submit("--gres=gpu:v100:2", script="#!/bin/sh\nsleep 60\n").job_id, {"RUNNING"})
    text, json = settled(open_source(Slurm(source="text")), open_source(Slurm(source="json")))
    assert (json.nodes, json.queue, json.partitions) == (text.nodes, text.queue, text.partitions)
    jobs = {job.job_id: job for job in text.queue if "_" not in job.label}
    assert [jobs[i].name for i in ids] == [jobs[i].comment for i in ids] == texts
    assert {(jobs[i].gpus, jobs[i].held, jobs[i].state) for i in ids} == {(2, True, "PENDING")}
    assert len([job for job in text.queue if "_" in job.label]) == 5
    assert sum(node.gpus_used for node in text.nodes) == 2


def test_an_ended_job_is_read_from_accounting(here: SlurmCluster) -> None:
    done = here.submit(
        "--gres=gpu:a100:1", "--comment", "model=resnet50", script="#!/bin/sh\ntrue\n"
    )
    here.wait(done.job_id)
    here.sacct(done.job_id, "state")
    job = ended(str(done.job_id))
    assert (job.state, job.gpus, job.gpu_type) == (JobState.COMPLETED, 1, "a100")
    assert (job.cluster, job.stated, len(job.node_names)) == ("bench", "model=resnet50", 1)


def ended(job_id: str) -> EndedJob:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for job in streamed(Commands(), time.time() - PERIOD_S, time.time() + 1):
            if isinstance(job, EndedJob) and job.job_id == job_id:
                return job
        time.sleep(0.2)
    pytest.fail(f"job {job_id} is not among the ended ones after {PATIENCE_S:g} s")
