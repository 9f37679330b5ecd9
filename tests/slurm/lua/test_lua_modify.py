"""When a pending job changes: the daemon hears of it where the limit was ours, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_daemon import daemon
from lua_hook import NO_VAL, UID, Hook

from slurm_plugin.protocol import HookAnswer, parse_request

RUNNING, COMPLETING = 1, 0x8000
RECORD: dict[str, Any] = {
    "job_id": 25,
    "job_state": 0,
    "user_id": UID,
    "user_name": "u1",
    "name": "train",
    "comment": "model=resnet50 precision=amp epochs=90",
    "admin_comment": "precision-time v=1 limit=235 job: model=resnet50",
    "account": "lab1",
    "qos": "normal",
    "partition": "gpu",
    "features": "tensorcore",
    "tres_per_node": "gres/gpu:2",
    "time_limit": 235,
    "time_min": 0,
    "min_nodes": 1,
    "max_nodes": 0,
}
FASTER = {"tres_per_node": "gres/gpu:4"}
LOWER = HookAnswer(log="follows", time_limit=120, admin_comment="precision-time v=1 limit=120")
HIGHER = HookAnswer(log="follows", time_limit=400, admin_comment="precision-time v=1 limit=400")


def test_the_daemon_hears_what_changes_and_what_was(hook: Hook, path: Path) -> None:
    with daemon(path, LOWER) as running:
        hook.modify({**FASTER, "comment": ""}, RECORD)
        request = parse_request(running.lines[0])
    assert (request.kind, request.job_id, request.uid, request.user) == ("modify", 25, UID, "u1")
    assert (request.tres_per_node, request.comment, request.features) == ("gres/gpu:4", "", None)
    assert request.time_limit is None
    assert request.old["time_limit"] == "235"
    assert {k: request.old[k] for k in ("name", "tres_per_node", "admin_comment", "min_nodes")} == {
        "name": "train",
        "tres_per_node": "gres/gpu:2",
        "admin_comment": RECORD["admin_comment"],
        "min_nodes": "1",
    }
    assert "max_nodes" not in request.old
    assert [(p.name, p.max_min) for p in request.partitions] == [("gpu", 2880)]


@pytest.mark.parametrize(
    "change",
    [
        {"comment": "model=vgg16"},
        {"extra": "model=vgg16"},
        {"tres_per_job": "gres/gpu:1"},
        {"tres_per_task": "gres/gpu=1"},
        {"min_nodes": 2},
        {"num_tasks": 4},
    ],
)
def test_a_change_that_matters_is_asked_about(
    hook: Hook, path: Path, change: dict[str, Any]
) -> None:
    with daemon(path, LOWER) as running:
        assert hook.modify(change, RECORD).returned == 0
        assert running.connections == 1


@pytest.mark.parametrize(
    ("change", "record"),
    [
        ({**FASTER, "time_limit": 60}, {}),
        ({"priority": 0}, {}),
        ({"features": "a100"}, {}),
        ({}, {}),
        (FASTER, {"admin_comment": "ticket 4711"}),
        (FASTER, {"admin_comment": None}),
        (FASTER, {"job_state": RUNNING}),
        (FASTER, {"job_state": None}),
        ({"comment": "x"}, {"tres_per_node": None}),
    ],
)
def test_nothing_else_is_asked_about_or_touched(
    hook: Hook, path: Path, change: dict[str, Any], record: dict[str, Any]
) -> None:
    with daemon(path, LOWER) as running:
        called = hook.modify(change, _without_none({**RECORD, **record}))
        assert running.connections == 0
    assert called.returned == 0
    assert called.written == {}
    assert called.logs == []


def test_a_held_job_with_state_flags_is_still_pending(hook: Hook, path: Path) -> None:
    with daemon(path, LOWER) as running:
        hook.modify(FASTER, {**RECORD, "job_state": COMPLETING})
        assert running.connections == 1


def test_the_owner_is_named_where_only_the_change_says_who_it_is(hook: Hook, path: Path) -> None:
    record = _without_none({**RECORD, "user_name": None})
    with daemon(path, HookAnswer(log="", ttl_s=0)) as running:
        hook.modify({**FASTER, "user_id": UID, "user_name": "u1"}, record)
        hook.modify({**FASTER, "user_id": 0, "user_name": "root"}, record)
        assert [parse_request(line).user for line in running.lines] == ["u1", ""]


def test_a_user_gets_a_lower_limit_and_no_admin_comment(hook: Hook, path: Path) -> None:
    with daemon(path, LOWER):
        called = hook.modify(FASTER, RECORD)
    assert called.written == {"time_limit": 120}
    assert 'modify job=25 user=u1 name="train" follows outcome=set' in called.log()


def test_a_user_gets_no_higher_limit_for_slurm_would_refuse_the_update(
    hook: Hook, path: Path
) -> None:
    with daemon(path, HIGHER):
        called = hook.modify(FASTER, RECORD)
    assert called.written == {}
    assert "outcome=refused" in called.log()


@pytest.mark.parametrize("answer", [LOWER, HIGHER])
def test_root_gets_limit_and_admin_comment(hook: Hook, path: Path, answer: HookAnswer) -> None:
    with daemon(path, answer):
        called = hook.modify(FASTER, RECORD, uid=0)
    assert called.written == {
        "time_limit": answer.time_limit,
        "admin_comment": answer.admin_comment,
    }


@pytest.mark.parametrize(
    ("change", "record"),
    [({"time_min": 200}, {}), ({}, {"time_min": 200}), ({"partition": "short"}, {})],
)
def test_a_limit_outside_the_jobs_own_bounds_is_refused(
    hook: Hook, path: Path, change: dict[str, Any], record: dict[str, Any]
) -> None:
    with daemon(path, LOWER):
        assert hook.modify({**FASTER, **change}, {**RECORD, **record}).written == {}


def test_only_the_limit_of_an_answer_is_used(hook: Hook, path: Path) -> None:
    answer = HookAnswer(
        log="", time_limit=120, time_min=60, features="a100", prefer="b", gres="gpu:1"
    )
    with daemon(path, answer):
        assert hook.modify(FASTER, RECORD).written == {"time_limit": 120}


def test_the_user_is_told_where_slurm_can(hook: Hook, path: Path) -> None:
    with daemon(path, HookAnswer(log="", message="limit follows", ttl_s=0)):
        assert hook.modify(FASTER, RECORD).user == []
        newer = hook.modify({**FASTER, "assoc_qos": "normal"}, RECORD)
    assert newer.user == ["precision-time: limit follows"]


def test_a_change_passes_without_a_daemon(hook: Hook) -> None:
    for _ in range(2):
        called = hook.modify(FASTER, RECORD)
        assert called.returned == 0
        assert called.written == {}


def test_unset_numbers_are_no_change(hook: Hook, path: Path) -> None:
    with daemon(path, LOWER) as running:
        hook.modify({"min_nodes": NO_VAL, "time_limit": NO_VAL, "het_job_offset": 0}, RECORD)
        assert running.connections == 0


def _without_none(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if v is not None}
