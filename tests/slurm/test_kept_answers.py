"""Jobs that come to the same get the answer that was given before, in one view; others never."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from clusters import GPU_PARTITION, JOB, cluster, policy_of, submit
from site_runs import run_of

from predictor.estimate.core import Predictor
from predictor.estimate.fitting import Fitted
from predictor.identify.identify import identify
from predictor.identify.rules import Rule, Rules
from predictor.identify.stated import Stated
from predictor.site.calibration.site_state import SiteState
from predictor.site.similar.request import script_signature
from slurm_plugin.ahead import QueueAhead
from slurm_plugin.cluster import Association, SlurmJob, WallLimits
from slurm_plugin.daemon.decider_child import decided, load_policy
from slurm_plugin.decide import SlurmDecider
from slurm_plugin.estimate import Fields, Made, MadeBefore, Remembering, UnknownYetError, make
from slurm_plugin.protocol import (
    MAX_ANSWER_BYTES,
    VERSION,
    HookAnswer,
    HookRequest,
    PartitionRequest,
    parse_answer,
)

SCRIPT = "#!/bin/sh\npython train.py --lr 0.1 --seed 1\n"
POLICY = {
    "exclude": {"users": ["banned"]},
    "limits": {"history_mode": "fill"},
    "placement": {"partition_mode": "apply", "partition_choices": ["short", "nolimit"]},
}
# Another value of each field of a request.
OTHERS: dict[str, Any] = {
    "uid": 7,
    "user": "banned",
    "account": "lab2",
    "qos": "long",
    "name": "sim-1",
    "comment": JOB.replace("epochs=90", "epochs=45"),
    "extra": "batch=32 epochs=3",
    "admin_comment": "precision-time v=1 own=none job: model=bert-base batch_size=8 steps=10",
    "partition": "short",
    "partitions": (GPU_PARTITION, PartitionRequest("short", 10, 30)),
    "usable_partitions": ("gpu", "cpu"),
    "time_limit": 600.0,
    "time_min": 30.0,
    "min_nodes": 2,
    "max_nodes": 1,
    "num_tasks": 2,
    "ntasks_per_node": 2,
    "sockets_per_node": 2,
    "min_cpus": 64,
    "cpus_per_task": 8,
    "min_mem_per_node": 65536,
    "min_mem_per_cpu": 1024,
    "waits": 1,
    "within": 30,
    "tres_per_job": "gres/gpu:8",
    "tres_per_node": "gres:gpu:a100:2",
    "tres_per_socket": "gres:gpu:1",
    "tres_per_task": "gres:gpu:2",
    "features": "v100",
    "prefer": "a100",
    "req_nodes": "v1",
    "exc_nodes": "a[1-2]",
    "reservation": "maintenance",
    "script": "#!/bin/sh\npython other.py --epochs 3\n",
    "work_dir": "/home/u1/other",
    "argv": ("/home/u1/run.sh", "--epochs", "3"),
    "environment": {"PRECISION_TIME_BATCH_SIZE": "64"},
}


class Counting(MadeBefore):
    """Knows every prediction, and counts how often it was asked."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor, self.asked = predictor, 0

    def __call__(self, fields: Fields) -> Made:
        self.asked += 1
        return make(self.predictor, fields)


@pytest.fixture(scope="module")
def fresh(fitted: Fitted) -> Callable[[], SlurmDecider]:
    """Deciders that have answered nothing so far, at a site with a past and a queue."""
    runs = [
        run_of(n, asked="", elapsed_s=600.0 + 60 * n, user="u1", name=f"sim-{n}", submit_line="")
        for n in range(40)
    ]
    memory = SiteState.learn(runs).memory
    running = [
        SlurmJob(
            job_id=n,
            user="u2",
            name="long",
            state="RUNNING",
            partitions=("gpu",),
            gpus=4,
            node_names=(name,),
            start_s=1.8e9 - 60,
            limit_min=2000,
            label=str(n),
        )
        for n, name in enumerate(("a1", "a2", "v1", "v2"))
    ]
    walls = WallLimits(
        qos={"long": 120}, associations=(Association(account="lab2", max_wall_min=60),)
    )
    view = cluster(queue=tuple(running), walls=walls)
    ahead = QueueAhead.of(view)

    def make_one() -> SlurmDecider:
        one = SlurmDecider(
            Counting(fitted.predictor), policy_of(POLICY), view, memory=memory, ahead=ahead
        )
        one.read_cpu_s = 60.0  # the bound is not for first calls
        return one

    return make_one


@pytest.fixture(autouse=True)
def _nobody_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a job starts depends on who came before it, whatever is kept."""
    monkeypatch.setattr(QueueAhead, "add", lambda queue, job: None)


def asked(decider: SlurmDecider) -> int:
    assert isinstance(decider.predictor, Counting)
    return decider.predictor.asked


def test_a_sweep_is_answered_once_and_each_job_as_if_alone(
    fresh: Callable[[], SlurmDecider],
) -> None:
    decider, first = fresh(), submit(script=SCRIPT)
    decider.decide(first)
    before = asked(decider)
    for n in range(2, 9):
        script = SCRIPT.replace("0.1", f"0.{n}").replace("seed 1", f"seed {n}")
        job = replace(first, name=f"sweep-{n}", script=script, comment=f"{JOB} run {n}", uid=n)
        assert decider.decide(job) == fresh().decide(job)
    assert asked(decider) == before > 0


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.7"),
        ("python train.py --epochs 5 --seed=11", "python train.py --epochs 5 --seed=12"),
        ("#SBATCH --job-name=fold-1\npython t.py", "#SBATCH --job-name=fold-2\npython t.py"),
        ("# trial 8\npython train.py", "# trial 9\npython train.py"),
    ],
)
def test_a_number_that_means_nothing_here_makes_no_other_script(line: str, other: str) -> None:
    decider = SlurmDecider(MadeBefore(), policy_of({}), cluster())
    decider.read_cpu_s = 60.0
    script = f"#!/bin/sh\n{line}\n"
    decider.decide(submit(script=script))
    with patch("slurm_plugin.decide.identify", side_effect=AssertionError):
        decider.decide(submit(script=script.replace(line, other)))


def test_a_script_that_is_given_up_is_still_known_by_its_signature() -> None:
    """Its reading takes longer than the hook may, but runs alike are found by its words."""
    decider = SlurmDecider(MadeBefore(), policy_of({}), cluster())
    script = "#!/bin/sh\nsrun python train.py --x 1 --name value\n"
    signature = script_signature(script)
    decider.read_cpu_s = 0.05

    def without_end(**given: Any) -> Stated:
        while given["script"]:
            pass
        return identify(**given)

    with patch("slurm_plugin.decide.identify", side_effect=without_end):
        answer = decider.decide(submit(comment=None, script=script))
    assert "not read yet: more than" in str(answer.message)
    assert f"script={signature}" in str(answer.admin_comment)
    assert decider.is_open  # and read aside


# Where the bound falls into a callback of the collector, its error is lost and comes again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_aside_a_long_script_is_read_and_one_without_end_is_given_up_for_good(
    fitted: Fitted, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("site: first\n")
    decider = load_policy(policy, aside=True)
    decider.look(cluster(), None)
    line = "srun python train.py --x 1 --name value\n"
    answer = decider.decide(submit(comment=None, script="#!/bin/sh\n" + line * 30))
    assert "not read" not in str(answer.message)
    answer = decider.decide(submit(comment=None, script="#!/bin/sh\n" + line * 10_000))
    assert "not read: more than 50 ms" in str(answer.message)
    assert not decider.is_open


def test_rules_see_every_number_of_a_script() -> None:
    rule = Rule("folds", {"script": re.compile("--fold (?P<n>[0-9]+)")}, {"epochs": "{n}"})
    decider = SlurmDecider(MadeBefore(), policy_of({}), cluster(), rules=Rules((rule,)))
    decider.read_cpu_s = 60.0
    told = [
        decider.decide(submit(comment="model=resnet50", script=f"python t.py --fold {n} --lr 1\n"))
        for n in (1, 2)
    ]
    assert all(f"epochs={n}" in str(said.admin_comment) for n, said in enumerate(told, 1))


@pytest.mark.parametrize("start", [{}, {"script": SCRIPT}, {"comment": "", "name": "sim-99"}])
def test_whatever_differs_the_answer_is_that_of_the_job_itself(
    fresh: Callable[[], SlurmDecider], start: dict[str, Any]
) -> None:
    assert set(OTHERS) == {field.name for field in fields(HookRequest)}
    decider, first = fresh(), submit(**start)
    decider.decide(first)
    answers = set()
    for name, value in OTHERS.items():
        job = replace(first, **{name: value})
        answers.add(decider.decide(job))
        assert decider.decide(job) == fresh().decide(job), name
    assert len(answers) > 10


def test_a_new_view_and_a_new_replay_are_decided_by(fresh: Callable[[], SlurmDecider]) -> None:
    decider, job = fresh(), submit()
    narrow = decider.decide(job)
    smaller = cluster(nodes=tuple(n for n in cluster().nodes if n.name[0] == "a"))
    decider.look(smaller, None)
    wide = decider.decide(job)
    assert wide != narrow
    decider.look(smaller, QueueAhead())
    assert decider.decide(job) == wide


def test_what_is_still_to_be_predicted_is_not_kept(fresh: Callable[[], SlurmDecider]) -> None:
    decider, job = fresh(), submit()
    decider.predictor = MadeBefore()
    first = decider.decide(job)
    assert decider.is_open
    assert decider.decide(job) == first
    assert decider.is_open
    known = fresh()
    decider.predictor = known.predictor
    assert decider.decide(job) == known.decide(job) != first


def test_what_was_predicted_aside_is_known_however_it_is_stated(fitted: Fitted) -> None:
    said = {"model": "resnet50", "gpu": "a100", "batch_size": 37, "steps": 10}
    fields = frozenset({**said, "precision": "amp"}.items())
    aside, known = Remembering(fitted.predictor), MadeBefore()
    made, wrong = aside(fields), frozenset({**said, "precision": "fp7"}.items())
    refused = aside(wrong)
    known.take(pickle.loads(pickle.dumps(aside.made())))
    assert aside.made() == ()
    assert known(fields) == made
    assert known(fields) is known(fields)
    assert known(frozenset({**said, "precision": "mixed_fp16_fp32"}.items())) == made
    assert known(wrong) == refused
    with pytest.raises(UnknownYetError):
        known(frozenset({**said, "precision": "amp", "batch_size": 38}.items()))


@pytest.mark.parametrize("length", range(8080, 8200, 6))
def test_an_answer_with_its_id_is_never_too_long_for_the_hook(length: int) -> None:
    class Talkative:
        is_open = False

        def decide(self, request: HookRequest) -> HookAnswer:
            return HookAnswer(log="reason=set", message="a" * length, time_limit=90)

    line = b"v=%d&user=ada\n" % VERSION
    found = decided(Talkative(), line, f"{2**22:x}-{10**9}")  # type: ignore[arg-type]
    assert len(found.line) <= MAX_ANSWER_BYTES
    assert parse_answer(found.line).time_limit == 90
