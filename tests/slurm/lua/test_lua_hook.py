"""What the hook does with a good answer: to the job, to the user, to slurmctld's log."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import daemon, says
from lua_hook import INFINITE, JOB, NO_VAL, Hook

from slurm_plugin.order import BASE, SINCE_S
from slurm_plugin.protocol import HookAnswer, parse_request

NICE_OFFSET = 2147483648

GOOD = HookAnswer(
    log="model=resnet50 limit=235 reason=set",
    message="resnet50, mixed_fp16_fp32, 8x a100: 3 h 12 min\ntime limit set to 3:55:00",
    time_limit=235,
    time_min=200,
    features="(a100|v100)&tensorcore",
    admin_comment="precision-time v=1 limit=235",
)


def test_a_good_answer_is_written_to_the_job(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD):
        called = hook.submit(features="a100|v100")
    assert called.returned == 0
    assert called.written == {
        "time_limit": 235,
        "time_min": 200,
        "features": "(a100|v100)&tensorcore",
        "admin_comment": "precision-time v=1 limit=235",
    }


def test_prefer_gres_and_partition_are_written(hook: Hook, path: Path) -> None:
    answer = HookAnswer(log="", prefer="a100", gres="gpu:a100:2", partition="short", time_limit=30)
    with daemon(path, answer):
        called = hook.submit()
    assert called.written == {
        "prefer": "a100",
        "gres": "gpu:a100:2",
        "partition": "short",
        "time_limit": 30,
    }


def test_the_user_reads_every_line_and_the_admin_one(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD):
        called = hook.submit(features="a100|v100")
    assert called.user == [
        "precision-time: resnet50, mixed_fp16_fp32, 8x a100: 3 h 12 min",
        "precision-time: time limit set to 3:55:00",
    ]
    assert called.log().startswith(
        'precision-time: submit user=u1 name="train" model=resnet50 limit=235 reason=set '
        "outcome=set us="
    )


def test_a_job_without_gpus_is_not_asked_about(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD) as running:
        called = hook.submit(tres_per_node=None)
        assert running.connections == 0
    assert called.written == {}
    assert called.logs == []


@pytest.mark.parametrize("minutes", [1, 60, 100000, INFINITE])
def test_a_limit_of_the_user_is_never_touched(hook: Hook, path: Path, minutes: int) -> None:
    with daemon(path, GOOD):
        called = hook.submit(features="a100|v100", time_limit=minutes)
    assert called.job["time_limit"] == minutes
    assert "time_min" not in called.written
    assert called.written["features"] == "(a100|v100)&tensorcore"


def test_a_time_min_of_the_user_is_kept(hook: Hook, path: Path) -> None:
    with daemon(path, HookAnswer(log="", time_limit=235, time_min=200)):
        assert hook.submit(time_min=10).written == {"time_limit": 235}


def test_a_limit_below_the_users_time_min_is_refused(hook: Hook, path: Path) -> None:
    with daemon(path, HookAnswer(log="", time_limit=235)):
        called = hook.submit(time_min=300)
    assert called.written == {}
    assert "outcome=refused" in called.log()


@pytest.mark.parametrize(
    ("partition", "limit", "is_set"),
    [
        (None, 2880, True),
        (None, 2881, False),
        ("short", 31, False),
        ("short,gpu", 2880, True),
        ("nolimit", 500000, True),
        ("unknown", 10, False),
    ],
)
def test_no_limit_above_the_largest_max_time_of_the_partitions(
    hook: Hook, path: Path, partition: str | None, limit: int, is_set: bool
) -> None:
    with daemon(path, HookAnswer(log="", time_limit=limit, features="tensorcore")):
        called = hook.submit(partition=partition)
    assert called.written == ({"time_limit": limit, "features": "tensorcore"} if is_set else {})


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        (HookAnswer(log="", features="tensorcore"), {"features": "p100"}),
        (HookAnswer(log="", prefer="a100"), {"prefer": "p100"}),
        (HookAnswer(log="", features="a100 & `id`"), {}),
        (HookAnswer(log="", features="x" * 1001, time_limit=10), {}),
        (HookAnswer(log="", gres="gpu:2\nx", time_limit=10), {}),
        (HookAnswer(log="", partition="elsewhere", time_limit=10), {}),
        (HookAnswer(log="", partition="short"), {"time_limit": 60}),
        (HookAnswer(log="", partition="short"), {"time_limit": INFINITE}),
    ],
)
def test_an_answer_that_contradicts_the_job_is_refused_as_a_whole_for_this_job_alone(
    hook: Hook, path: Path, answer: HookAnswer, job: dict[str, Any]
) -> None:
    with daemon(path, answer) as running:
        called = hook.submit(**job)
        assert called.written == {}
        assert "outcome=refused" in called.log()
        running.talk = says(HookAnswer(log="", time_limit=20).encode())
        assert hook.submit(name="next").written == {"time_limit": 20}


def test_an_admin_comment_that_is_not_ours_is_kept(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD):
        called = hook.submit(features="a100|v100", admin_comment="ticket 4711")
    assert called.job["admin_comment"] == "ticket 4711"
    assert called.job["time_limit"] == 235


def test_an_admin_comment_slurm_would_refuse_is_left_out(hook: Hook, path: Path) -> None:
    with daemon(
        path, HookAnswer(log="", time_limit=20, admin_comment="precision-time" + "é" * 900)
    ):
        assert hook.submit().written == {"time_limit": 20}


def test_identical_jobs_are_asked_about_once(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD) as running:
        calls = [hook.submit(features="a100|v100") for _ in range(5)]
        assert running.connections == 1
    assert all(called.job["time_limit"] == 235 for called in calls)
    assert all(called.user == calls[0].user for called in calls)
    assert "outcome=cached" in calls[-1].log()


def test_an_answer_that_is_repeated_tells_no_start(hook: Hook, path: Path) -> None:
    told = "2 h expected; starts in about 25 min, later if shorter jobs come; placed\nodd: x"
    with daemon(path, HookAnswer(log="", message=told, ttl_s=60)):
        calls = [hook.submit() for _ in range(3)]
    assert [call.user[0].count("starts in") for call in calls] == [1, 0, 0]
    for call in calls[1:]:
        assert call.user == ["precision-time: 2 h expected; placed", "precision-time: odd: x"]


def test_jobs_that_differ_in_one_byte_are_asked_about_each(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD) as running:
        for n in range(3):
            hook.submit(name=f"train{n}")
        assert running.connections == 3


def test_an_answer_with_ttl_0_is_not_kept(hook: Hook, path: Path) -> None:
    with daemon(path, HookAnswer(log="", time_limit=9, ttl_s=0)) as running:
        hook.submit()
        hook.submit()
        assert running.connections == 2


def test_few_answers_are_kept_when_few_may_be(hook: Hook, path: Path) -> None:
    hook.configure(cache_entries=4)
    with daemon(path, GOOD) as running:
        for n in range(20):
            hook.submit(name=f"train{n}")
        hook.submit(name="train19")
        assert running.connections == 20
        hook.submit(name="train0")
        assert running.connections == 21


def test_kept_answers_take_bounded_memory(hook: Hook, path: Path) -> None:
    hook.configure(cache_bytes=50_000)
    with daemon(path, GOOD) as running:
        for n in range(5):
            hook.submit(name=f"train{n}", script="x" * 20_000)
        hook.submit(name="train0", script="x" * 20_000)
        assert running.connections == 6


def test_a_long_message_is_cut_and_stripped(hook: Hook, path: Path) -> None:
    text = "\n".join(["\x1b[31m%s%n\x9b" + "é" * 600, *["more"] * 20])
    with daemon(path, HookAnswer(log="", message=text)):
        called = hook.submit()
    assert len(called.user) == 8
    for line in called.user:
        shown = line.encode("latin-1").decode()
        assert shown.isprintable()
        assert len(line) <= 500 + len("precision-time: ")
    assert called.user[0].startswith("precision-time: ?[31m%s%n?")


def test_user_text_cannot_forge_a_log_line(hook: Hook, path: Path) -> None:
    evil = 'a" outcome=set\nprecision-time: submit user=root %s%n%d\r\x1b]0;x\x07'
    with daemon(path, HookAnswer(log=f"model={evil}", time_limit=10)):
        called = hook.submit(name=evil, comment=evil)
    assert [level for level, _ in called.logs] == ["info"]
    line = called.log()
    assert line.isprintable()
    assert "name=\"a' outcome=set?precision-time" in line
    assert called.job["time_limit"] == 10
    assert called.job["name"] == evil


def test_settings_of_a_wrong_type_are_ignored(hook: Hook, path: Path) -> None:
    hook.configure(timeout="long", socket=7, unknown=1)
    with daemon(path, GOOD):
        assert hook.submit(features="a100|v100").job["time_limit"] == 235


def test_arrays_and_het_components_are_set_like_any_job(hook: Hook, path: Path) -> None:
    with daemon(path, HookAnswer(log="", time_limit=10)):
        assert hook.submit(array_inx="0-3%2").written == {"time_limit": 10}
        assert hook.submit(het_job_offset=1).written == {"time_limit": 10}


def test_unset_in_slurm_is_absent_in_the_request(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD) as running:
        hook.submit(time_limit=NO_VAL, sockets_per_node=65534)
        request = parse_request(running.lines[0])
    assert (request.time_limit, request.time_min, request.min_nodes) == (None, None, None)
    assert (request.sockets_per_node, request.script) == (None, None)
    assert request.comment == JOB["comment"]


ORDERED = HookAnswer(log="", order="site_factor", delay=3600, other_delay=72_000, ttl_s=0)


@pytest.fixture
def patient(hook: Hook) -> Hook:
    """A hook that asks about every job, and waits on a busy machine."""
    hook.configure(timeout=1.0, breaker_s=0.0)
    return hook


def test_every_job_gets_a_place_once_the_daemon_told_an_order(patient: Hook, path: Path) -> None:
    with daemon(path, ORDERED):
        assert patient.submit().written == {"site_factor": BASE - 3600}
    # without GPUs, and without an answer: as jobs of which nothing is known
    assert patient.submit(tres_per_node=None).written == {"site_factor": BASE - 72_000}
    assert patient.submit().written["site_factor"] == BASE - 72_000
    with daemon(path, HookAnswer(log="reason=late", ttl_s=0)):
        assert patient.submit().written == {"site_factor": BASE - 72_000}
    assert patient.submit(tres_per_node=None).written == {"site_factor": BASE - 72_000}


def test_no_job_gets_a_place_once_the_daemon_told_none(patient: Hook, path: Path) -> None:
    with daemon(path, ORDERED):
        patient.submit()
    with daemon(path, HookAnswer(log="", ttl_s=15)):
        assert patient.submit().written == {}
    assert patient.submit(tres_per_node=None).written == {}


@pytest.mark.parametrize("job", [{"priority": 0}, {"site_factor": 777}])
def test_a_held_job_and_a_place_given_by_the_site_stay(
    patient: Hook, path: Path, job: dict[str, int]
) -> None:
    with daemon(path, ORDERED):
        assert patient.submit(**job).written == {}


def test_waiting_is_counted_in_where_the_scheduler_does_not(patient: Hook, path: Path) -> None:
    with daemon(path, replace(ORDERED, since=SINCE_S)):
        back = BASE - patient.submit().written["site_factor"]
    assert back == pytest.approx(time.time() - SINCE_S + 3600, abs=60)


@pytest.mark.parametrize("own", [0, 300, -300])
def test_nice_is_added_to_the_users_own_and_bounded(patient: Hook, path: Path, own: int) -> None:
    with daemon(path, replace(ORDERED, order="nice")):
        assert patient.submit(nice=NICE_OFFSET + own).written["nice"] == NICE_OFFSET + own + 3600
    with daemon(path, replace(ORDERED, order="nice", delay=4_000_000_000)):
        assert patient.submit(nice=NICE_OFFSET + own).written["nice"] == NICE_OFFSET + 2_000_000_000
