"""Jobs that bear alike on their answer are decided once by one view of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import JOB, cluster, submit

from predictor.estimate.fitting import Fitted
from slurm_plugin.cluster import Cluster
from slurm_plugin.config import Policy
from slurm_plugin.decide import Decider
from slurm_plugin.known import MAX_KEPT, KnownAnswers, job_of
from slurm_plugin.protocol import Answer, PartitionRequest, Request

ELSEWHERE: dict[str, Any] = {
    "uid": 7,
    "user": "u2",
    "account": "lab2",
    "qos": "low",
    "partition": "short",
    "time_min": 5.0,
    "partitions": (PartitionRequest("short", 10, 30),),
    "usable_partitions": ("short",),
    "time_limit": 60.0,
    "min_nodes": 2,
    "max_nodes": 3,
    "num_tasks": 2,
    "ntasks_per_node": 2,
    "sockets_per_node": 2,
    "tres_per_job": "gres:gpu:8",
    "tres_per_node": "gres:gpu:2",
    "tres_per_socket": "gres:gpu:1",
    "tres_per_task": "gres:gpu:1",
    "features": "gpu",
    "prefer": "a100",
    "req_nodes": "a1",
    "exc_nodes": "a1",
    "reservation": "r1",
    "array_inx": "1-4",
    "het_job_offset": 1,
    "admin_comment": "mine",
}
TOLD = {"name", "comment", "extra", "script", "argv", "environment", "work_dir"}


def test_a_job_of_another_wording_gets_the_answer_it_would_get_alone(decider: Any) -> None:
    shared = decider()
    requests = [
        submit(),
        submit(name="sweep-2", work_dir="/home/u1", script="#!/bin/sh\n"),
        submit(comment=f"{JOB} second try"),
        submit(comment="", environment={"PRECISION_TIME": JOB}),
        submit(comment="model=resnet50 precision=amp epochs=90 batch=128"),
        submit(comment=f"{JOB} modle=x"),
    ]
    for request in requests:
        assert shared.decide(request) == decider().decide(request)


def test_alike_jobs_are_priced_once(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    view = cluster()
    decider = Decider(fitted.predictor, Policy(), lambda: view)
    first = decider.decide(submit())
    monkeypatch.setattr(decider, "_outcome", None)
    assert decider.decide(submit(name="another", comment=f"{JOB} again")) is first


@pytest.mark.parametrize("field", ELSEWHERE)
def test_a_job_that_asks_for_something_else_is_another(decider: Any, field: str) -> None:
    stated = decider()._stated(submit())
    changed = submit(**{field: ELSEWHERE[field]})
    assert job_of(changed, stated) != job_of(submit(), stated)


def test_every_field_of_a_request_counts_but_what_is_told_and_what_changes() -> None:
    fields = set(Request.__dataclass_fields__) - TOLD - {"kind", "job_id", "old"}
    assert fields == set(ELSEWHERE)


def test_a_new_view_of_slurm_is_decided_by(fitted: Fitted) -> None:
    views: list[Cluster | None] = [cluster()]
    decider = Decider(fitted.predictor, Policy(), lambda: views[-1])
    assert decider.decide(submit()).features == "tensorcore"
    views.append(cluster(nodes=()))
    assert decider.decide(submit()).features is None
    views.append(None)
    short_lived = decider.decide(submit())
    assert short_lived.time_limit is None
    views.append(cluster())
    assert decider.decide(submit()).features == "tensorcore"


def test_a_view_that_changes_while_a_job_is_decided_keeps_nothing(fitted: Fitted) -> None:
    views = iter([cluster(), cluster(nodes=()), *[cluster()] * 9])
    decider = Decider(fitted.predictor, Policy(), lambda: next(views))
    by_no_nodes = decider.decide(submit())
    assert by_no_nodes.features is None
    assert decider.decide(submit()).features == "tensorcore"


def test_where_the_queue_is_weighed_each_job_is_decided_anew(decider: Any) -> None:
    weighing = decider(placement={"partition_mode": "advise"})
    first, second = weighing.decide(submit()), weighing.decide(submit())
    assert first == second
    assert first is not second


def test_a_changed_job_is_never_answered_from_what_is_kept(decider: Any) -> None:
    shared = decider()
    shared.decide(submit())
    answer = shared.decide(submit(kind="modify", job_id=7, comment=JOB))
    assert "not-ours" in answer.log


def test_what_is_kept_is_bounded(decider: Any) -> None:
    known, view, stated = KnownAnswers(), cluster(), decider()._stated(submit())
    jobs = [job_of(submit(min_nodes=n + 1), stated) for n in range(MAX_KEPT + 5)]
    for job in jobs:
        known.keep(view, job, Answer(log="x"))
    assert sum(known.get(view, job) is not None for job in jobs) <= MAX_KEPT
    assert known.get(view, jobs[-1]) is not None
