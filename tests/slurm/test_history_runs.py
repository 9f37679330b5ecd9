"""Rows of accounting become runs: what was asked, predicted and limited, from what jobs carry."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import replay

from predictor.identify.rules import read_rules
from predictor.site.history.ingest import LeftOut, Through, Unread, fill
from predictor.site.history.run import EndedJob, JobState, LimitBy, Predicted, Run
from predictor.site.history.store import History, Merged
from slurm_plugin.cluster import GpuGres, SlurmNode
from slurm_plugin.config import Slurm, SlurmHardware, SlurmPolicy
from slurm_plugin.history.ingest import GpuNames, Runs, records
from slurm_plugin.mark import JobMark
from slurm_plugin.sources.commands import Commands

VERSIONS = ("2205", "2511", "2605")
SINCE_S, UNTIL_S = 1795219000.0 - 86400, 1795219000.0 + 86400
JOB = EndedJob(
    scheduler="slurm",
    cluster="north",
    job_id="7",
    name="train",
    user="ann",
    account="lab",
    partition="gpu",
    qos="normal",
    state=JobState.COMPLETED,
    submit_s=1e9,
    start_s=1e9 + 5,
    end_s=1e9 + 4000,
    limit_s=7200.0,
    gpus=8,
    gpu_type="a100",
    nodes=1,
    node_names=("n1",),
)
MARK = JobMark(
    limit=120,
    p50_s=3600.0,
    hi_s=5400.0,
    q=0.95,
    step_s=0.118,
    gpu="a100-sxm4-80gb",
    gpus=8,
    tier="site",
    version="v7",
    job="model=resnet50 precision=mixed_fp16_fp32 batch_size=256",
)


def run(runs: Runs | None = None, **changes: Any) -> Run:
    return (runs or Runs()).run(replace(JOB, **changes))


def policy(tmp_path: Path, version: str = "2511") -> SlurmPolicy:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    return SlurmPolicy(slurm=Slurm(bin_dir=replay.commands(folder, replay.PAYLOADS / version)))


def test_our_mark_tells_what_was_asked_predicted_and_set() -> None:
    found = run(decision=MARK.text(), stated="model=vgg16")
    assert (found.asked, found.origin, found.limit_by) == (MARK.job, "decision", LimitBy.US)
    assert found.predicted == Predicted(
        step_s=0.118,
        median_s=3600.0,
        upper_s=5400.0,
        level=0.95,
        gpu="a100-sxm4-80gb",
        gpus=8,
        version="v7",
        tier="site",
        limit_s=7200.0,
    )


def test_a_limit_that_watch_moved_is_still_ours_and_the_prediction_keeps_the_first() -> None:
    found = run(decision=replace(MARK, limit=150, first=120).text(), limit_s=9000.0)
    assert found.limit_by is LimitBy.US
    assert found.predicted is not None
    assert found.predicted.limit_s == 7200.0


def test_a_limit_that_somebody_changed_is_not_ours() -> None:
    runs = Runs(default_s={"gpu": 3600.0})
    assert run(runs, decision=MARK.text(), limit_s=600.0).limit_by is LimitBy.USER


@pytest.mark.parametrize("decision", ["", "pt:1 a=b|c", "precision-time v=2 limit=1", "x" * 2000])
def test_the_comments_of_others_are_no_decision(decision: str) -> None:
    assert run(decision=decision).predicted is None


@pytest.mark.parametrize(
    ("words", "asked", "origin"),
    [
        (
            {"stated": "model=vgg16 precision=fp32 bs=32"},
            "model=vgg16 precision=fp32 batch_size=32",
            "comment",
        ),
        (
            {"submit_line": "srun --gres=gpu:8 python train.py --arch resnet50 --batch-size 64"},
            "model=resnet50 batch_size=64",
            "script",
        ),
        (
            {"submit_line": "sbatch --gres=gpu:1 train.py --arch resnet50"},
            "model=resnet50",
            "script",
        ),
        (
            {"submit_line": "sbatch -J x --wrap=torchrun train.py --arch resnet50"},
            "model=resnet50 framework=pytorch trainer=pytorch",
            "script",
        ),
        (
            {"submit_line": "sbatch -J x --wrap exec torchrun train.py --arch resnet50"},
            "model=resnet50 framework=pytorch trainer=pytorch",
            "script",
        ),
        ({"submit_line": "sbatch job.sh resnet50"}, "", ""),
        ({"stated": "a=b and c"}, "", ""),
        ({}, "", ""),
    ],
)
def test_without_a_mark_the_words_of_the_user_tell(
    words: dict[str, str], asked: str, origin: str
) -> None:
    found = run(**words)
    assert (found.asked, found.origin) == (asked, origin)


def test_a_comment_goes_before_a_submit_line() -> None:
    line = "srun python train.py --arch resnet50 --batch-size 64"
    assert run(stated="model=vgg16", submit_line=line).asked == "model=vgg16 batch_size=64"


def test_site_rules_name_jobs_that_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules: [{name: n, match: {user: '^ann$', name: train}, job: {model: resnet50}}]"
    )
    runs = Runs(read_rules(path))
    found = run(runs)
    assert (found.asked, found.origin) == ("model=resnet50", "rule n")
    assert run(runs, user="bob").asked == ""


@pytest.mark.parametrize(
    ("line", "limit_s", "by"),
    [
        ("sbatch -t 120 a.sh", 7200.0, LimitBy.USER),
        ("sbatch --time=2:00:00 a.sh", 7200.0, LimitBy.USER),
        ("sbatch --time UNLIMITED a.sh", None, LimitBy.USER),
        ("sbatch a.sh --timeout 5", 86400.0, LimitBy.DEFAULT),
        ("sbatch a.sh", 7200.0, LimitBy.USER),
        ("sbatch a.sh", None, None),
    ],
)
def test_whose_a_limit_is_follows_from_submit_line_and_default(
    line: str, limit_s: float | None, by: LimitBy | None
) -> None:
    runs = Runs(default_s={"gpu": 86400.0})
    assert run(runs, submit_line=line, limit_s=limit_s).limit_by is by
    assert run(Runs(), submit_line="sbatch a.sh", limit_s=7200.0).limit_by is None


def test_gpus_are_named_as_submit_names_them() -> None:
    nodes = [
        SlurmNode(name="typed", partitions=(), gpus=(GpuGres("a100", 8),)),
        SlurmNode(
            name="plain", partitions=(), gpus=(GpuGres(None, 4),), features=frozenset({"v100"})
        ),
        SlurmNode(name="own", partitions=(), gpus=(GpuGres("big", 4),)),
        SlurmNode(name="mixed", partitions=(), gpus=(GpuGres("a100", 4), GpuGres("v100", 4))),
    ]
    names = GpuNames(nodes, SlurmHardware(gpu_types={"big": "h100-sxm5-80gb"}))
    assert names("a100", ("typed",)) == names("a100", ("gone",)) == names("a100", ("mixed",))
    assert names(None, ("plain",)) == names("v100", ("mixed",)) != names("a100", ("typed",))
    assert names("big", ("own",)) == names("big", ()) == "h100-sxm5-80gb"
    assert names(None, ("mixed",)) is None
    assert names("unheard-of", ("own",)) == "unheard-of"


@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_a_real_slurm_accounted_is_there_once(tmp_path: Path, version: str) -> None:
    items = list(records(policy(tmp_path, version), SINCE_S, UNTIL_S))
    runs = [item for item in items if isinstance(item, Run)]
    assert len({found.key for found in runs}) == len(runs) >= 18
    assert not [item for item in items if isinstance(item, Unread)]
    assert any(isinstance(item, LeftOut) for item in items)
    assert [item.at_s for item in items if isinstance(item, Through)][-1] == UNTIL_S
    by_id = {found.ended.job_id: found for found in runs}
    assert by_id["1"].asked == "model=resnet50 precision=mixed_fp16_fp32"
    assert (by_id["1"].ended.gpu_type or "").startswith("a100-")
    assert by_id["1"].limit_by is LimitBy.USER
    requeued = [found.ended for found in runs if found.ended.job_id == "7_0"]
    assert [job.state for job in requeued] == [JobState.NODE_FAIL, JobState.CANCELLED]
    assert requeued[0].submit_s < requeued[1].submit_s


def test_ingesting_again_changes_nothing(tmp_path: Path) -> None:
    with History.open(str(tmp_path / "history.sqlite")) as store:
        first = fill(store, records(policy(tmp_path), SINCE_S, UNTIL_S))
        again = fill(store, records(policy(tmp_path), SINCE_S, UNTIL_S))
        assert first.added == Merged(new=store.count())
        assert again.added == Merged(same=first.added.new)


def test_a_row_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.mkdir()
    for path in (replay.PAYLOADS / "2511").iterdir():
        data = path.read_bytes()
        if path.name == "ended.txt":
            data = data.replace(b"@MARK@v[1-2]@MARK@", b"@MARK@v[1-@MARK@")
        (payloads / path.name).write_bytes(data)
    folder = tmp_path / "bin"
    folder.mkdir()
    slurm = Slurm(bin_dir=replay.commands(folder, payloads))
    day = UNTIL_S - 86400, UNTIL_S
    items = list(records(SlurmPolicy(slurm=slurm), *day))
    (bad,) = [item for item in items if isinstance(item, Unread)]
    assert bad.name == "job 6"
    assert "v[1-" in bad.reason
    assert len(items) == len(list(records(policy(tmp_path), *day)))


def test_a_slow_reader_is_no_reason_to_end_sacct(tmp_path: Path) -> None:
    program = tmp_path / "sacct"
    program.write_text("#!/bin/sh\nhead -c 300000 /dev/zero\n")
    program.chmod(0o755)
    pieces = Commands(tmp_path).stream("sacct", timeout_s=2.0)
    size = len(next(pieces))
    time.sleep(2.2)
    assert size + sum(map(len, pieces)) == 300_000
