"""One job, asked about in every way there is: the same expected time, from the same runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clusters import cluster, submit

from predictor.cli import capacity_source
from predictor.estimate.fitting import Fitted
from predictor.site.calibration.site_state import SiteState, read_state, write_state
from predictor.site.capacity.live import Live
from predictor.site.history.run import EndedJob, JobState, Run
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun
from predictor.site.similar.request import script_signature
from slurm_plugin import live_queue
from slurm_plugin.cluster import Settings, SlurmJob
from slurm_plugin.config import SlurmPolicy
from slurm_plugin.decide import SlurmDecider
from slurm_plugin.errors import SourceError
from slurm_plugin.live_queue import etas
from slurm_plugin.mark import parse_mark

SCRIPT = """#!/bin/bash
#SBATCH --job-name=fold
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:2
#SBATCH --time=20:00:00
python fold.py --config mine.yaml
"""
NOW_S, TOOK_S = 1.9e9, 5400.0


class OneJobSource:
    """A Slurm in which one job waits."""

    def __init__(self, job: SlurmJob) -> None:
        self.job = job

    def queue(self) -> tuple[SlurmJob, ...]:
        return (self.job,)

    def nodes(self) -> tuple[Any, ...]:
        return cluster().nodes

    def settings(self) -> Settings:
        return Settings(cluster_name="c")


def silent(commands: object) -> Any:
    raise SourceError("no command answers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ada has run the script before, at a site that learned of it."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    folder.mkdir()
    (folder / "fold.sh").write_text(SCRIPT)
    monkeypatch.setenv("PRECISION_TIME_HOME", str(home))
    monkeypatch.chdir(folder)
    memory = SiteMemory()
    for at in range(12):
        began_s = NOW_S - (20 - at) * 86_400.0
        ended = EndedJob(
            scheduler="slurm",
            cluster="c",
            job_id=str(at),
            name="fold",
            user="ada",
            partition="gpu",
            state=JobState.COMPLETED,
            submit_s=began_s,
            start_s=began_s,
            end_s=began_s + TOOK_S + 10 * at,
            limit_s=72_000.0,
            gpus=2,
            gpu_type="a100-sxm4-80gb",
            script=script_signature(SCRIPT),
            directory=str(folder),
        )
        past = PastRun.of(Run(ended=ended))
        assert past is not None
        memory.add(past)
    write_state(SiteState((), memory))
    return folder


def test_estimate_queue_eta_and_daemon_say_the_same_of_a_job_without_a_network(
    folder: Path, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    from predictor.cli.main import main

    def said(*words: str) -> Mapping[str, Any]:
        found = CliRunner().invoke(main, [*words, "--format", "json"])
        assert found.exit_code == 0, found.output
        return dict(json.loads(found.stdout))

    told = said("estimate", "fold.sh", "--user", "ada")
    assert told["expected_s"] == pytest.approx(TOOK_S, rel=0.05)
    assert told["evidence"][0].startswith("12 runs of the same user and script")

    memory = read_state().memory
    request = submit(
        user="ada",
        account=None,
        name="fold",
        comment="",
        script=SCRIPT,
        work_dir=str(folder),
        tres_per_node="gres:gpu:a100:2",
        time_limit=1200.0,
    )
    answer = SlurmDecider(fitted.predictor, SlurmPolicy(), cluster(), memory=memory).decide(request)
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert mark.expected_s == pytest.approx(told["expected_s"], rel=1e-4)

    waits = SlurmJob(
        job_id=7,
        label="7",
        user="ada",
        name="fold",
        state="PENDING",
        partitions=("gpu",),
        gpus=2,
        gpu_type="a100",
        limit_min=1200,
        submit_s=NOW_S,
        work_dir=str(folder),
        admin_comment=str(answer.admin_comment),
    )
    monkeypatch.setattr(live_queue, "open_source", lambda slurm: OneJobSource(waits))
    monkeypatch.setattr(live_queue, "reservations_of", silent)
    monkeypatch.setattr(live_queue, "waiting_of", silent)
    live = live_queue.read(SlurmPolicy())
    [eta] = etas(live, [waits], memory)
    assert eta.end is not None
    assert eta.end.expected_s - live.at_s == pytest.approx(told["expected_s"], rel=1e-3)
    assert eta.basis == "12 runs of the same user and script"

    def read_queue(name: str) -> Live:
        return live

    monkeypatch.setattr(capacity_source, "_read_queue", read_queue)
    [queued] = said("capacity", "queue", "--from", "slurm")["queue"]
    assert queued["ends_s"]["median"] == pytest.approx(told["expected_s"], rel=1e-3)
    assert queued["evidence"].startswith("12 runs of the same user and script")
