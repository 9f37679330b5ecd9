"""What a client of the daemon may rely on, whatever it or others send."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, line, read_answer, running

from slurm_plugin.daemon.connection import MAX_CONNECTIONS
from slurm_plugin.protocol import MAX_REQUEST_BYTES

FUZZED = 10_000
REFERENCE = Path(__file__).parents[2] / "docs/reference/slurm.md"
HASTY = {"deadline_ms": 40.0}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running(tmp_path_factory.mktemp("daemon") / "run") as daemon:
        yield daemon


@pytest.fixture(scope="module", autouse=True)
def aside() -> Iterator[None]:
    """Every daemon here has a real process that finishes decisions aside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DECIDE_ASIDE", "1")
        yield


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon whose deadline is its default."""
    with running(tmp_path_factory.mktemp("hasty") / "run", daemon=HASTY) as daemon:
        yield daemon


def test_a_request_line_is_answered(daemon: DaemonProcess) -> None:
    answer = daemon.ask("limit=235")
    assert answer["v"] == "1"
    assert answer["time_limit"] == "235"


def test_a_client_may_ask_again_on_its_connection(daemon: DaemonProcess) -> None:
    with daemon.talking() as (client, answers):
        for limit in ("11", "12", "13"):
            client.sendall(line(comment=f"limit={limit}"))
            assert read_answer(answers)["time_limit"] == limit


def test_several_lines_are_answered_in_their_order(daemon: DaemonProcess) -> None:
    with daemon.talking() as (client, answers):
        client.sendall(b"".join(line(comment=f"limit={100 + n}") for n in range(200)))
        got = [read_answer(answers)["time_limit"] for _ in range(200)]
    assert got == [str(100 + n) for n in range(200)]


def test_repeats_on_one_connection_are_answered_in_their_order(daemon: DaemonProcess) -> None:
    with daemon.talking() as (client, answers):
        for _ in range(2):
            client.sendall(b"".join(line(comment=f"limit={300 + n % 3}") for n in range(60)))
            got = [read_answer(answers)["time_limit"] for _ in range(60)]
            assert got == [str(300 + n % 3) for n in range(60)]


def test_a_line_may_come_in_pieces(daemon: DaemonProcess) -> None:
    with daemon.talking() as (client, answers):
        for byte in line(comment="limit=77"):
            client.sendall(bytes([byte]))
        assert read_answer(answers)["time_limit"] == "77"


def test_a_client_that_is_done_sending_still_gets_all_answers(daemon: DaemonProcess) -> None:
    asked = [line(comment=f"limit={400 + n % 5}") for n in range(50)]
    with daemon.talking() as (client, answers):
        client.sendall(b"".join(asked) + b"half a line")
        client.shutdown(socket.SHUT_WR)
        assert len(answers.read().splitlines()) == len(asked)


def test_the_connection_is_closed_after_the_client_is_done(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_a_line_that_is_too_long_ends_its_connection(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"v=1&script=" + b"x" * (2 * MAX_REQUEST_BYTES))
        assert _closed(client)
    assert daemon.ask("limit=5")["time_limit"] == "5"


def test_the_longest_line_is_answered(daemon: DaemonProcess) -> None:
    start = b"v=1&user=ada&comment=limit%3D9&script="
    whole = start + b"x" * (MAX_REQUEST_BYTES - len(start) - 1) + b"\n"
    with daemon.talking() as (client, answers):
        client.sendall(whole)
        assert read_answer(answers)["time_limit"] == "9"


@pytest.mark.parametrize(
    "wrong",
    [b"\n", b"v=2\n", b"v=1&uid=many\n", b"\xff\xfe\n", b"&" * 2000 + b"\n"],
)
def test_a_malformed_line_changes_nothing_and_the_next_is_answered(
    daemon: DaemonProcess, wrong: bytes
) -> None:
    with daemon.talking() as (client, answers):
        client.sendall(wrong + line(comment="limit=8"))
        first, second = read_answer(answers), read_answer(answers)
    assert set(first) <= {"v", "log", "ttl_s"}
    assert first["ttl_s"] == "0"
    assert second["time_limit"] == "8"


def test_an_error_in_a_decision_changes_nothing_and_is_logged(daemon: DaemonProcess) -> None:
    answer = daemon.ask("raise=boom")
    assert answer["log"].startswith("reason=failed")
    assert set(answer) == {"v", "log", "ttl_s"}
    event = daemon.wait_for_event(lambda e: "boom" in e.get("exception", ""))
    assert event["level"] == "error"


def test_a_limit_below_a_minute_never_leaves_the_daemon(daemon: DaemonProcess) -> None:
    assert "time_limit" not in daemon.ask("limit=0")


def test_ten_thousand_fuzzed_lines_are_each_answered(daemon: DaemonProcess) -> None:
    draw = random.Random(20260)
    lines = [_fuzzed(draw) for _ in range(FUZZED)]
    with daemon.talking(timeout_s=120.0) as (client, answers):  # of all, on a busy machine too
        sender = threading.Thread(target=client.sendall, args=(b"".join(lines),))
        sender.start()
        for _ in lines:
            answer = read_answer(answers)
            assert answer["v"] == "1"
            assert "time_limit" not in answer or int(answer["time_limit"]) >= 1
        sender.join()
    assert daemon.process.poll() is None


def _fuzzed(draw: random.Random) -> bytes:
    """A request line with some bytes changed, some doubled and some left out."""
    raw = bytearray(
        line(
            comment=f"limit={draw.randrange(1, 999)}",
            uid="7",
            min_nodes="2",
            time_limit="inf",
            script="#!/bin/sh\n$(reboot) %s 'quoted'",
        )
    )
    for _ in range(draw.randrange(1, 12)):
        at = draw.randrange(len(raw))
        match draw.randrange(3):
            case 0:
                raw[at] = draw.randrange(256)
            case 1:
                del raw[at : at + draw.randrange(1, 9)]
                raw = raw or bytearray(b"v")
            case _:
                raw[at:at] = raw[at : at + draw.randrange(1, 30)]
    return bytes(raw).replace(b"\n", b"%0A") + b"\n"


def test_a_silent_client_delays_nobody(daemon: DaemonProcess) -> None:
    silent = [daemon.connect() for _ in range(20)]
    for client in silent:
        client.sendall(b"v=1&user=")
    assert daemon.ask("limit=6")["time_limit"] == "6"
    for client in silent:
        client.close()


def test_a_client_that_reads_no_answers_delays_nobody(daemon: DaemonProcess) -> None:
    with daemon.connect(timeout_s=1.0) as deaf:
        with pytest.raises(TimeoutError):
            deaf.sendall(line(comment="limit=6") * 200_000)
        assert daemon.ask("limit=7")["time_limit"] == "7"


def test_connections_beyond_the_bound_are_closed(daemon: DaemonProcess) -> None:
    clients = [daemon.connect() for _ in range(MAX_CONNECTIONS + 8)]
    refused = 0
    for client in clients[::-1]:
        with contextlib.suppress(ConnectionError):
            client.sendall(line(comment="limit=6"))
        refused += _closed(client)
    for client in clients:
        client.close()
    assert refused >= 8
    assert any(_answered(daemon) for _ in range(200))  # once it has seen that they went


def _answered(daemon: DaemonProcess) -> bool:
    try:
        return daemon.ask("limit=6")["time_limit"] == "6"
    except (ConnectionError, AssertionError):  # closed without an answer
        time.sleep(0.02)
        return False


def test_a_late_decision_changes_nothing_and_is_finished_all_the_same(hasty: DaemonProcess) -> None:
    first = hasty.ask("sleep=2")
    assert set(first) == {"v", "log", "message", "ttl_s", "admin_comment"}
    assert first["message"] == "the estimate follows: precision-time slurm eta"
    assert first["log"].startswith("reason=late")
    number = first["log"].rpartition("id=")[2]
    assert first["admin_comment"] == f"precision-time v=1 later={number} own=none"
    assert first["ttl_s"] == "0"
    hasty.wait_for_event(lambda e: e.get("outcome") == "finished_late" and e["id"] == number)


def test_a_bound_that_a_deadline_leaves_behind_ends_no_daemon(tmp_path: Path) -> None:
    with running(tmp_path / "run", daemon=HASTY) as daemon:
        assert "later=" in daemon.ask("bound=0.02")["admin_comment"]
        for n in range(1, 200):
            assert daemon.ask(f"limit={n}")["time_limit"] == str(n)


def test_an_answer_comes_before_the_hook_gives_up(daemon: DaemonProcess) -> None:
    started = time.monotonic()
    assert daemon.ask("sleep=5", within="100")["log"].startswith("reason=late")
    assert time.monotonic() - started < 5


def test_what_takes_a_new_prediction_is_answered_without_it_and_finished_aside(
    hasty: DaemonProcess,
) -> None:
    first = hasty.ask("new=1")
    number = first["log"].rpartition("id=")[2]
    assert first["log"].startswith("reason=later")
    assert first["admin_comment"] == f"precision-time v=1 later={number} own=none"
    assert first["ttl_s"] == "0"
    event = hasty.wait_for_event(
        lambda e: e.get("outcome") == "finished_late" and e["id"] == number
    )
    assert event["model"] == "resnet50"


def test_a_submit_may_wait_for_a_new_prediction(tmp_path: Path) -> None:
    with running(tmp_path / "run", daemon={"prediction_ms": 3000.0}) as daemon:
        assert daemon.ask("new=1")["log"].startswith("model=resnet50")


def test_one_user_cannot_keep_others_from_their_answers(tmp_path: Path) -> None:
    with running(tmp_path / "run") as daemon, daemon.connect() as hostile:
        clients = [daemon.connect() for _ in range(20)]
        for n, client in enumerate(clients):
            client.sendall(line(comment="sleep=0.2", user="mallory", name=str(n), account=str(n)))
        time.sleep(0.05)
        started = time.monotonic()
        assert daemon.ask("limit=5", user="ada")["time_limit"] == "5"
        assert time.monotonic() - started < 0.2 * len(clients)
        for client in clients:
            client.close()
        hostile.close()


def test_a_process_that_ends_is_followed_by_another(daemon: DaemonProcess) -> None:
    assert daemon.ask("end=now")["log"].startswith("reason=later")
    assert daemon.ask("limit=5")["time_limit"] == "5"
    number = daemon.ask("new=1")["log"].rpartition("id=")[2]
    daemon.wait_for_event(lambda e: e.get("outcome") == "finished_late" and e["id"] == number)


def test_requests_behind_a_slow_decision_are_decided_in_time(hasty: DaemonProcess) -> None:
    started = time.monotonic()
    assert hasty.ask("sleep=9")["log"].startswith("reason=late")
    assert hasty.ask("limit=5")["time_limit"] == "5"
    assert time.monotonic() - started < 9


def test_a_flood_of_slow_decisions_keeps_nobody_from_an_answer(hasty: DaemonProcess) -> None:
    with hasty.talking() as (client, answers):
        client.sendall(line(comment="sleep=9") * 40)
        for _ in range(10):
            assert read_answer(answers)["log"].startswith("reason=late")
            started = time.monotonic()
            assert hasty.ask("limit=5", user="grace")["v"] == "1"
            assert time.monotonic() - started < 9


def test_every_decision_is_one_line_of_the_log(daemon: DaemonProcess) -> None:
    answer = daemon.ask("limit=44", name='two\nlines "quoted"', user="grace")
    number = answer["log"].rpartition("id=")[2]
    event = daemon.wait_for_event(lambda e: e.get("id") == number)
    assert event["outcome"] == "decided"
    assert event["job"] == 'two\nlines "quoted"'
    assert event["user"] == "grace"
    assert (event["model"], event["gpu"], event["limit"]) == ("resnet50", "a100", "44")
    assert event["duration_us"] > 0
    (greps,) = re.findall(r"journalctl .* \| grep '(.*)'", REFERENCE.read_text("utf-8"))
    assert greps in daemon.log_file.read_text()


def _closed(client: socket.socket) -> bool:
    """True where the daemon has closed the connection without an answer."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
