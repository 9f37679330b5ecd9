"""How the daemon starts, reloads, stops, and whom it serves."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.daemon.listen import Listener, ListenError
from slurm_plugin.daemon.peers import uid_of

from daemon_process import START_S, STOP_S, DaemonProcess, line, running

FOREIGN = pwd.getpwnam("nobody").pw_uid
# Connects as another user, sends a request, and says how many bytes came back.
AS_ANOTHER_USER = """
import os, socket, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
client = socket.socket(socket.AF_UNIX)
client.settimeout(20)
client.connect(sys.argv[1])
try:
    client.sendall(bytes.fromhex(sys.argv[2]))
    print(len(client.recv(8192)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running(tmp_path / "run") as daemon:
        yield daemon


def test_ready_is_notified_when_requests_are_answered(daemon: DaemonProcess) -> None:
    assert "READY=1" in daemon.notified.seen
    assert daemon.ask("limit=5")["time_limit"] == "5"


def test_the_socket_is_for_its_owner_alone(daemon: DaemonProcess) -> None:
    status = daemon.socket.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_removes_the_socket_and_exits_well(
    daemon: DaemonProcess, number: signal.Signals
) -> None:
    daemon.process.send_signal(number)
    assert daemon.process.wait(STOP_S) == 0
    assert not daemon.socket.exists()
    daemon.notified.wait_for("STOPPING=1")


def test_a_stop_lets_the_decision_under_way_come_to_its_end(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.sendall(line(comment="sleep=0.7"))
        time.sleep(0.2)
        daemon.process.send_signal(signal.SIGTERM)
        assert b"reason=set" in client.recv(8192).replace(b"%3D", b"=")
    assert daemon.process.wait(STOP_S) == 0


def test_a_stop_does_not_wait_for_a_decision_without_end(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.sendall(line(comment="sleep=600"))
        time.sleep(0.2)
        assert daemon.end() == 0


def test_a_reload_takes_the_new_policy_and_forgets_old_answers(daemon: DaemonProcess) -> None:
    assert daemon.ask("limit=5")["message"].startswith("first")
    daemon.write_policy(site="second")
    _reload(daemon, "reloaded")
    assert daemon.ask("limit=5")["message"].startswith("second")
    assert "RELOADING=1" in daemon.notified.seen
    assert any(text.startswith("MONOTONIC_USEC=") for text in daemon.notified.seen)


@pytest.mark.parametrize(
    ("text", "said"),
    [("limits: {quantile: 7}", "limits.quantile=7"), ("{", "is not YAML"), (None, "No such file")],
)
def test_a_reload_of_a_broken_policy_keeps_the_old_one(
    daemon: DaemonProcess, text: str | None, said: str
) -> None:
    if text is None:
        daemon.policy.unlink()
    else:
        daemon.policy.write_text(text)
    _reload(daemon, said)
    assert daemon.ask("limit=5")["message"].startswith("first")
    daemon.write_policy(site="third")
    _reload(daemon, "reloaded")
    assert daemon.ask("limit=5")["message"].startswith("third")


def test_what_only_a_restart_can_change_is_said_at_a_reload(daemon: DaemonProcess) -> None:
    daemon.write_policy(daemon={"socket": str(daemon.directory / "other.sock")})
    _reload(daemon, "daemon.socket has changed: it takes a restart")
    assert daemon.ask("limit=5")["time_limit"] == "5"


def test_a_second_daemon_refuses_to_start_and_leaves_the_first_alone(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    second = subprocess.run(
        [*daemon.command], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert second.returncode != 0
    assert f"another daemon is running on {daemon.socket}" in second.stderr
    assert daemon.ask("limit=5")["time_limit"] == "5"


def test_a_killed_daemon_is_followed_by_another_on_the_same_socket(tmp_path: Path) -> None:
    with running(tmp_path / "run") as first:
        first.process.kill()
        first.process.wait(STOP_S)
        assert first.socket.exists()
        first.notified.seen.clear()
        first.start()
        assert first.ask("limit=5")["time_limit"] == "5"


def test_a_file_that_is_no_socket_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    listener = Listener(path)
    with pytest.raises(ListenError, match="is not a socket"):
        listener.listen()
    listener.close()
    assert path.read_text() == "data"


def test_a_socket_that_another_program_listens_on_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        listener = Listener(path)
        with pytest.raises(ListenError, match="another program listens"):
            listener.listen()
        listener.close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_socket_put_there_by_others_meanwhile_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "ours"
    listener = Listener(path)
    with listener.listen(), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
        listener.close()
    assert path.exists()


def test_a_directory_others_can_write_in_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(ListenError, match="mode 0777"):
        Listener(open_to_all / "daemon.sock")


def test_a_missing_directory_is_made_with_mode_0755(tmp_path: Path) -> None:
    Listener(tmp_path / "new" / "daemon.sock").close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755 & ~_umask()


@as_root
def test_a_foreign_user_is_closed_at_once_and_counted(tmp_path: Path) -> None:
    metrics = {"metrics": f"unix:{tmp_path / 'run' / 'metrics.sock'}"}
    with running(tmp_path / "run", daemon=metrics) as daemon:
        _let_everybody_reach(daemon.socket)
        assert _bytes_for(daemon, FOREIGN) == 0
        daemon.wait_for_event(lambda e: e["event"] == f"refused a connection of uid {FOREIGN}")
        assert daemon.ask("limit=5")["time_limit"] == "5"
        shown = _scraped_over(tmp_path / "run" / "metrics.sock")
    assert 'connections_closed_total{why="foreign_user"} 1.0' in shown


@as_root
def test_a_user_the_policy_names_is_answered(tmp_path: Path) -> None:
    with running(tmp_path / "run", daemon={"allowed_users": ["nobody"]}) as daemon:
        _let_everybody_reach(daemon.socket, mode=None)
        assert _bytes_for(daemon, FOREIGN) > 0


@as_root
def test_slurm_user_owns_the_socket_of_a_daemon_of_root(tmp_path: Path) -> None:
    with running(tmp_path / "run", environment={"SLURM_USER": f"nobody({FOREIGN})"}) as daemon:
        _let_everybody_reach(daemon.socket, mode=None)
        assert daemon.socket.stat().st_uid == FOREIGN
        assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o600
        assert _bytes_for(daemon, FOREIGN) > 0


@pytest.mark.parametrize(
    ("user", "uid"), [("root", 0), ("64030", 64030), ("slurm(64030)", 64030), ("no-such-user", None)]
)
def test_users_are_names_or_numbers(user: str, uid: int | None) -> None:
    assert uid_of(user) == uid


def test_metrics_on_loopback_count_what_was_asked(tmp_path: Path) -> None:
    port = _free_port()
    with running(tmp_path / "run", daemon={"metrics": f"127.0.0.1:{port}"}) as daemon:
        for _ in range(3):
            daemon.ask("limit=30")
        daemon.ask("raise")
        with daemon.connect() as client:
            client.sendall(b"nonsense\n")
            client.recv(8192)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as reply:
            shown = reply.read().decode()
    for counted in (
        'requests_total{kind="submit",outcome="decided"} 1.0',
        'requests_total{kind="submit",outcome="repeated"} 2.0',
        'requests_total{kind="submit",outcome="failed"} 1.0',
        'requests_total{kind="",outcome="malformed"} 1.0',
        'limits_set_total{gpu="a100",tier="model"} 3.0',
        "answer_seconds_count 5.0",
        'predictor_info{version="stand-in"} 1.0',
        "snapshot_failures 0.0",
    ):
        assert f"precision_time_slurm_{counted}" in shown
    age = next(t for t in shown.splitlines() if "snapshot_age_seconds " in t and t[0] != "#")
    assert 0 <= float(age.split()[1]) < START_S


def test_a_slow_reader_of_metrics_delays_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.sock"
    with running(tmp_path / "run", daemon={"metrics": f"unix:{path}"}) as daemon:
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(str(path))
            slow.sendall(b"GET /met")
            assert daemon.ask("limit=5")["time_limit"] == "5"
            assert "requests_total" in _scraped_over(path)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_impossible_metrics_address_is_named_at_start(tmp_path: Path, address: str) -> None:
    daemon = DaemonProcess(tmp_path / "run", daemon={"metrics": address})
    assert daemon.launch().wait(START_S) != 0
    daemon.close()
    assert f"daemon.metrics={address!r}" in daemon.log_file.read_text()


def test_the_watchdog_is_fed_while_decisions_come_to_an_end(tmp_path: Path) -> None:
    with running(tmp_path / "run", environment={"WATCHDOG_USEC": "200000"}) as daemon:
        daemon.notified.wait_for("WATCHDOG=1", daemon.process)


def test_a_socket_made_by_systemd_is_used_and_left_there(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "run")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(daemon.socket))
        made.listen()
        start = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); "
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
            "os.execv(sys.argv[2], sys.argv[2:])"
        )
        environment = os.environ | {"NOTIFY_SOCKET": str(daemon.notified.path)}
        with daemon.log_file.open("ab") as log:
            daemon.process = subprocess.Popen(
                [sys.executable, "-c", start, str(made.fileno()), *daemon.command],
                pass_fds=[made.fileno()], stderr=log, env=environment,
            )  # fmt: skip
        daemon.notified.wait_for("READY=1", daemon.process)
        assert daemon.ask("limit=5")["time_limit"] == "5"
        assert daemon.end() == 0
        assert daemon.socket.exists()
    daemon.close()


def test_text_logs_keep_one_line_for_an_event(tmp_path: Path) -> None:
    with running(tmp_path / "run", daemon={"log_format": "text"}) as daemon:
        daemon.ask("limit=5", name="a\nb")
        assert daemon.end() == 0
        lines = daemon.log_file.read_text().splitlines()
    assert all(text[:4].isdecimal() for text in lines)
    assert any('job="a\\nb"' in text for text in lines)


def _reload(daemon: DaemonProcess, said: str) -> None:
    seen = len([event for event in daemon.events() if said in event["event"]])
    daemon.process.send_signal(signal.SIGHUP)
    daemon.notified.seen.clear()
    daemon.notified.wait_for("READY=1", daemon.process)
    until = time.monotonic() + START_S
    while len([event for event in daemon.events() if said in event["event"]]) <= seen:
        assert time.monotonic() < until, daemon.log_file.read_text()
        time.sleep(0.02)


def _bytes_for(daemon: DaemonProcess, uid: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER.format(uid=uid), str(daemon.socket),
         line(comment="limit=5").hex()],
        capture_output=True, text=True, timeout=START_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def _let_everybody_reach(path: Path, mode: int | None = 0o666) -> None:
    """Open the directories pytest made for us alone, and the socket where that is the test."""
    if mode is not None:
        path.chmod(mode)
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid():
            with contextlib.suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)


def _scraped_over(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return client.makefile("rb").read().decode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask
