"""How the daemon starts, reloads and stops, and what systemd hears of it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import START_S, STOP_S, DaemonProcess, line, running


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running(tmp_path / "run") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that others use too: each test writes the policy it speaks of."""
    with running(tmp_path_factory.mktemp("shared") / "run") as daemon:
        yield daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_once_it_is_ready_and_a_stop_removes_the_socket_and_exits_well(
    daemon: DaemonProcess, number: signal.Signals
) -> None:
    assert "READY=1" in daemon.notified.seen
    assert daemon.ask("limit=5")["time_limit"] == "5"
    daemon.process.send_signal(number)
    assert daemon.process.wait(STOP_S) == 0
    assert not daemon.socket.exists()
    daemon.notified.wait_for("STOPPING=1")


def test_a_stop_lets_the_decision_under_way_come_to_its_end(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.sendall(line(comment="sleep=1.5"))
        time.sleep(0.7)
        daemon.process.send_signal(signal.SIGTERM)
        assert b"reason=set" in client.recv(8192).replace(b"%3D", b"=")
    assert daemon.process.wait(STOP_S) == 0


def test_a_stop_does_not_wait_for_a_decision_without_end(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.sendall(line(comment="sleep=600"))
        time.sleep(0.2)
        assert daemon.end() == 0


def test_a_reload_takes_the_new_policy_and_forgets_old_answers(shared: DaemonProcess) -> None:
    assert not shared.ask("limit=5")["message"].startswith("second")
    shared.write_policy(site="second")
    _reload(shared, "reloaded")
    assert shared.ask("limit=5")["message"].startswith("second")
    assert "RELOADING=1" in shared.notified.seen
    assert any(text.startswith("MONOTONIC_USEC=") for text in shared.notified.seen)


def test_a_reload_of_a_broken_policy_keeps_the_old_one(shared: DaemonProcess) -> None:
    site = shared.ask("limit=5")["message"].split()[0]
    for text, said in (("limits: {quantile: 7}", "limits.quantile=7"), ("{", "cannot be read")):
        shared.policy.write_text(text)
        _reload(shared, said)
        assert shared.ask("limit=5")["message"].startswith(site)
    shared.policy.unlink()
    _reload(shared, "No such file")
    assert shared.ask("limit=5")["message"].startswith(site)
    shared.write_policy(site="third")
    _reload(shared, "reloaded")
    assert shared.ask("limit=5")["message"].startswith("third")


def test_what_only_a_restart_can_change_is_said_at_a_reload(shared: DaemonProcess) -> None:
    shared.write_policy(daemon={"socket": str(shared.directory / "other.sock")})
    _reload(shared, "daemon.socket has changed: it takes a restart")
    assert shared.ask("limit=5")["time_limit"] == "5"


def test_a_second_daemon_refuses_to_start_and_leaves_the_first_alone(shared: DaemonProcess) -> None:
    shared.write_policy()
    second = subprocess.run(
        [*shared.command], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert second.returncode != 0
    assert f"another daemon is running on {shared.socket}" in second.stderr
    assert shared.ask("limit=5")["time_limit"] == "5"


def test_a_killed_daemon_is_followed_by_another_on_the_same_socket(tmp_path: Path) -> None:
    with running(tmp_path / "run") as first:
        first.process.kill()
        first.process.wait(STOP_S)
        assert first.socket.exists()
        first.notified.seen.clear()
        first.start()
        assert first.ask("limit=5")["time_limit"] == "5"


def test_the_watchdog_is_fed_while_decisions_come_to_an_end(tmp_path: Path) -> None:
    with running(tmp_path / "run", environment={"WATCHDOG_USEC": "200000"}) as daemon:
        daemon.notified.wait_for("WATCHDOG=1", daemon.process)


def test_text_logs_keep_one_line_for_an_event(tmp_path: Path) -> None:
    with running(tmp_path / "run", daemon={"log_format": "text"}) as daemon:
        daemon.ask("limit=5", name="a\nb")
        assert daemon.end() == 0
        lines = daemon.log_file.read_text().splitlines()
    assert all(text.startswith("time=") for text in lines)
    assert any("job='a\\nb'" in text for text in lines)


def _reload(daemon: DaemonProcess, said: str) -> None:
    seen = len([event for event in daemon.events() if said in event["event"]])
    daemon.process.send_signal(signal.SIGHUP)
    daemon.notified.seen.clear()
    daemon.notified.wait_for("READY=1", daemon.process)
    until = time.monotonic() + START_S
    while len([event for event in daemon.events() if said in event["event"]]) <= seen:
        assert time.monotonic() < until, daemon.log_file.read_text()
        time.sleep(0.02)
