"""One job, asked about in every way there is: the same expected time, from the same runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
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
from predictor.site.similar.past_runs import PastRun, RunEnd
from predictor.site.similar.request import JobRequest, command_signature, script_signature
from predictor.units import duration
from slurm_plugin import live_queue
from slurm_plugin.cluster import Settings, SlurmJob
from slurm_plugin.config import SlurmLimits, SlurmPolicy
from slurm_plugin.decide import SlurmDecider
from slurm_plugin.errors import SourceError
from slurm_plugin.limit import enough_min, job_estimate
from slurm_plugin.live_queue import etas
from slurm_plugin.mark import parse_mark
from slurm_plugin.protocol import HookAnswer, HookRequest

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


def fold(folder: Path, script: str | None, **more: Any) -> HookRequest:
    """The submit of the script."""
    return submit(
        user="ada",
        account=None,
        name="fold",
        script=script,
        work_dir=str(folder),
        tres_per_node="gres:gpu:a100:2",
        time_limit=1200.0,
        **more,
    )


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
    request = fold(folder, SCRIPT, comment="")
    answer = SlurmDecider(fitted.predictor, SlurmPolicy(), cluster(), memory=memory).decide(request)
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert mark.expected_s == pytest.approx(told["expected_s"], rel=1e-4)

    live, waits = waiting(answer, folder, monkeypatch)
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


def waiting(
    answer: HookAnswer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Live, SlurmJob]:
    """The queue in which a job waits as the hook left it."""
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
    return live_queue.read(SlurmPolicy()), waits


@pytest.mark.parametrize(
    ("script", "basis"),
    [(SCRIPT, "physics and 12 runs of the same user"), (None, "physics")],
)
def test_message_mark_and_eta_tell_one_number_of_a_job_that_names_its_network(
    folder: Path,
    fitted: Fitted,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    basis: str,
) -> None:
    memory = read_state().memory if script else SiteMemory()
    request = fold(folder, script)
    answer = SlurmDecider(fitted.predictor, SlurmPolicy(), cluster(), memory=memory).decide(request)
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert mark.expected_s
    assert mark.upper_s
    times = f" {duration(mark.expected_s)} expected (95 %: {duration(mark.upper_s)})"
    assert re.findall(r"[^:;]+ expected \(.*?\)", answer.message or "") == [times]
    live, waits = waiting(answer, folder, monkeypatch)
    [eta] = etas(live, [waits], memory)
    assert eta.end is not None
    assert eta.end.expected_s - live.at_s == pytest.approx(mark.expected_s, rel=5e-3)
    assert eta.basis == basis


def test_runs_of_a_command_are_found_again_by_the_mark(
    folder: Path, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where accounting keeps no scripts."""
    memory, path = SiteMemory(), f"{folder}/fold.sh"
    for run in read_state().memory.runs():
        asked = replace(
            run.request, script="", command=command_signature(f"{path} --epochs 3", ""), user="ada"
        )
        memory.add(replace(run, request=replace(asked, hashed=False, name="fold")))
    request = submit(
        user="ada",
        name="fold",
        comment="",
        argv=("fold.sh", "--epochs", "9"),
        work_dir=str(folder),
        tres_per_node="gres:gpu:a100:2",
    )
    answer = SlurmDecider(fitted.predictor, SlurmPolicy(), cluster(), memory=memory).decide(request)
    assert (answer.message or "").startswith("similar to 12 of your runs: 1 h 31 min expected")
    live, waits = waiting(answer, folder, monkeypatch)
    [eta] = etas(live, [waits], memory)
    assert eta.basis == "12 runs of the same user and command"


def test_no_shorter_limit_is_advised_than_the_time_that_is_told() -> None:
    memory, job = SiteMemory(), JobRequest(user="ada", gpus=2, limit_s=864_000.0)
    steps_s = [3600.0 * (1 + 0.1 * at) for at in range(10)]
    alone = job_estimate(job, memory, steps_s)
    assert enough_min(SlurmLimits(), alone, 300) == 300
    for at in range(20):  # others run for days here
        began_s, other = NOW_S, replace(job, user=f"u{at}")
        memory.add(
            PastRun(
                request=other,
                submit_s=began_s,
                end_s=began_s + 4e5,
                run_s=4e5,
                ended=RunEnd.COMPLETED,
                batch=str(at),
            )
        )
    found = job_estimate(job, memory, steps_s)
    assert found.quantile_s(0.95) > 300 * 60
    assert enough_min(SlurmLimits(), found, 300) is None
