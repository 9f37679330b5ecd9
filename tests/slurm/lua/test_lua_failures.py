"""A daemon that is away, slow or broken costs one short wait, and no job anything else."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from fake_daemon import Talk, daemon, says, stopped, trickles, waits
from lua_hook import Called, Hook

from slurm_plugin.protocol import HookAnswer

MARK = "precision-time v=1 later=hook own=none"
GOOD = HookAnswer(log="", time_limit=20)
BREAKER_S = 0.2
SLOW_S = 2.0  # what hangs would hang for ever; the deadline is 50 ms, and machines are busy


def unchanged(called: Called) -> bool:
    """Whether the job passed with nothing but our mark, without a word to its user."""
    written = called.written
    marked = written.pop("admin_comment", MARK) == MARK
    return called.returned == 0 and marked and written == {} and not called.user


def assert_one_miss(hook: Hook) -> None:
    """The first job waits a little and is told of, the next ones notice nothing."""
    first = hook.submit()
    assert unchanged(first)
    assert first.seconds < SLOW_S
    assert first.log().count("\n") == 0
    assert "jobs pass unchanged" in first.log()
    for _ in range(3):
        later = hook.submit()
        assert unchanged(later)
        assert later.log() == ""


def test_without_a_socket_jobs_pass(hook: Hook) -> None:
    assert_one_miss(hook)


def test_with_a_dead_daemon_jobs_pass(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD):
        pass
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    assert_one_miss(hook)


def test_with_a_socket_of_another_owner_jobs_pass(hook: Hook, path: Path) -> None:
    path.write_text("a file, not a socket")
    assert_one_miss(hook)


def test_with_a_hanging_daemon_jobs_pass(hook: Hook, path: Path) -> None:
    done = threading.Event()
    with daemon(path, waits(done)) as running:
        assert_one_miss(hook)
        assert running.connections == 1
        done.set()


def test_with_a_stopped_daemon_and_a_full_queue_jobs_pass(hook: Hook, path: Path) -> None:
    with stopped(path):
        assert_one_miss(hook)


def test_with_a_stopped_daemon_whose_queue_has_room_jobs_pass(hook: Hook, path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stopped:
        stopped.bind(str(path))
        stopped.listen(8)
        assert unchanged(hook.submit(script="x" * 65536, comment="y" * 4000))
        assert_no_wait(hook)


def assert_no_wait(hook: Hook) -> None:
    """The breaker is open."""
    called = hook.submit()
    assert unchanged(called)
    assert called.log() == ""
    assert "outcome=paused" in called.log("debug")


def _big(size: int) -> Talk:
    return says(b"v=1&message=" + b"x" * size + b"\n")


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(trickles(GOOD.encode() * 50), id="one byte each 10 ms"),
        pytest.param(says(b""), id="nothing"),
        pytest.param(says(b"\n"), id="an empty line"),
        pytest.param(says(GOOD.encode()[:-1]), id="no newline"),
        pytest.param(says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), id="another protocol"),
        pytest.param(says(bytes(range(256)) * 4), id="binary"),
        pytest.param(says(b"\0" * 5000), id="zeros"),
        pytest.param(_big(8192), id="one byte too many"),
        pytest.param(_big(1_000_000), id="1 MB"),
        pytest.param(says(GOOD.encode() * 2), id="two lines"),
        pytest.param(says(b"time_limit=20&log=x\n"), id="no version"),
        pytest.param(says(b"v=2&time_limit=20&log=x\n"), id="another version"),
        pytest.param(says(b"v=1&time_limit=20&log=%zz\n"), id="a broken escape"),
        pytest.param(says(b"v=1&time_limit\n"), id="no value"),
        *(
            pytest.param(says(f"v=1&time_limit={value}&log=x\n".encode()), id=f"time_limit={value}")
            for value in (
                "0",
                "-5",
                "nan",
                "inf",
                "1e300",
                "4294967294",
                "4294967295",
                "12.7",
                "0x10",
                "%20",
                "9" * 400,
                "{}",
            )
        ),
        pytest.param(says(b"v=1&time_limit=20&time_min=30&log=x\n"), id="time_min too long"),
        pytest.param(says(b"v=1&time_limit=20&time_min=0&log=x\n"), id="time_min=0"),
        pytest.param(says(b"v=1&time_limit=20&ttl_s=-1&log=x\n"), id="ttl_s=-1"),
    ],
)
def test_with_an_insane_answer_jobs_pass(hook: Hook, path: Path, talk: Talk) -> None:
    with daemon(path, talk):
        assert_one_miss(hook)


def test_an_answer_without_an_end_is_waited_for_once(hook: Hook, path: Path) -> None:
    done = threading.Event()

    def never_closes(connection: socket.socket, _line: bytes) -> None:
        connection.sendall(GOOD.encode())
        done.wait(20)

    with daemon(path, never_closes):
        assert_one_miss(hook)
        done.set()


def test_too_long_an_answer_is_told_as_such(hook: Hook, path: Path) -> None:
    with daemon(path, _big(1_000_000)):
        assert "an answer of more than 8192 bytes" in hook.submit().log()


def test_after_the_deadline_nobody_is_asked_and_the_daemon_is_not_taken_for_dead(
    hook: Hook, path: Path
) -> None:
    """As with a script that takes long to send, on a busy host."""
    hook.configure(timeout=0)
    with daemon(path, GOOD) as running:
        late = hook.submit()
        assert unchanged(late)
        assert (late.log(), running.connections) == ("", 0)


def test_a_daemon_may_read_to_the_end_of_the_request(hook: Hook, path: Path) -> None:
    def reads_on(connection: socket.socket, _line: bytes) -> None:
        assert connection.recv(1) == b""
        connection.sendall(GOOD.encode())

    with daemon(path, reads_on):
        assert hook.submit().written == {"time_limit": 20}


def test_a_daemon_that_closes_unread_connections_harms_nothing(hook: Hook, path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as refusing:
        refusing.bind(str(path))
        refusing.listen(8)

        def close_at_once() -> None:
            connection, _ = refusing.accept()
            connection.close()

        thread = threading.Thread(target=close_at_once)
        thread.start()
        assert unchanged(hook.submit(script="x" * 65536))
        thread.join()


def test_a_wrong_answer_of_a_living_daemon_is_no_reason_not_to_ask_for_the_next_job(
    hook: Hook, path: Path
) -> None:
    with daemon(path, b"?\n"):
        assert unchanged(hook.submit())
    with daemon(path, GOOD):
        assert hook.submit(name="next").written == {"time_limit": 20}


@pytest.mark.parametrize("own", [None, 30, 4294967295])
def test_a_job_without_an_answer_is_marked_with_the_limit_of_its_user(
    hook: Hook, own: int | None
) -> None:
    called = hook.submit(**({} if own is None else {"time_limit": own}))
    said = {None: "none", 30: "30", 4294967295: "inf"}[own]
    assert called.written == {"admin_comment": f"precision-time v=1 later=hook own={said}"}


def test_an_admin_comment_of_the_site_stays(hook: Hook) -> None:
    assert hook.submit(admin_comment="theirs").written == {}


def test_it_is_asked_again_after_the_pause(hook: Hook, path: Path) -> None:
    with stopped(path):
        assert_one_miss(hook)
    time.sleep(BREAKER_S)
    with daemon(path, GOOD):
        called = hook.submit()
    assert called.written == {"time_limit": 20}
    assert "the daemon answers again" in called.log()
    assert "answers again" not in hook.submit(name="next").log()


def test_a_second_failure_is_not_told_again(hook: Hook, path: Path) -> None:
    assert_one_miss(hook)
    time.sleep(BREAKER_S)
    assert hook.submit().log() == ""


def test_answers_that_are_kept_serve_while_the_daemon_is_away(hook: Hook, path: Path) -> None:
    with daemon(path, GOOD):
        hook.submit()
    assert unchanged(hook.submit(name="another"))
    assert hook.submit().written == {"time_limit": 20}


def test_no_descriptor_is_left_open(hook: Hook, path: Path) -> None:
    hook.configure(breaker_s=0.0)
    folder = f"/proc/{hook.pid}/fd"
    with daemon(path, b"?\n"):
        hook.submit()
        before = len(os.listdir(folder))
        for n in range(50):
            hook.submit(name=f"train{n}")
    for n in range(50):
        hook.submit(name=f"train{n}")
    assert len(os.listdir(folder)) == before


def test_without_luasocket_slurmctld_starts_and_jobs_pass(interpreter: str) -> None:
    with Hook(interpreter) as hook:
        assert hook.load(without_luasocket=True)["logs"] == []
        first, second = hook.submit(), hook.submit()
    assert unchanged(first)
    assert unchanged(second)
    assert "luasocket" in first.log()
    assert second.log() == ""


def test_a_fault_of_ours_passes_the_job_and_is_told_once(hook: Hook, path: Path) -> None:
    broken = {"gpu": 7}  # no part_list of Slurm's
    with daemon(path, GOOD):
        first = hook.submit(partitions=broken)  # type: ignore[arg-type]
        second = hook.submit(partitions=broken)  # type: ignore[arg-type]
    assert unchanged(first)
    assert unchanged(second)
    assert "passes unchanged" in first.log("error")
    assert second.log("error") == ""
