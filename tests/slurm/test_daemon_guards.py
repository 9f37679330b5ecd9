"""Whom the daemon serves, and what it never touches."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import START_S, DaemonProcess, line, running

from slurm_plugin.daemon import started
from slurm_plugin.daemon.connection import DaemonSocket, ListenError, uid_of

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


def test_the_socket_is_for_its_owner_alone(daemon: DaemonProcess) -> None:
    status = daemon.socket.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


def test_a_file_that_is_no_socket_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    listener = DaemonSocket(path)
    with pytest.raises(ListenError, match="is not a socket"):
        listener.listen()
    listener.close()
    assert path.read_text() == "data"


def test_a_socket_that_another_program_listens_on_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        listener = DaemonSocket(path)
        with pytest.raises(ListenError, match="another program listens"):
            listener.listen()
        listener.close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_socket_put_there_by_others_meanwhile_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "ours"
    listener = DaemonSocket(path)
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
        DaemonSocket(open_to_all / "daemon.sock")


def test_a_missing_directory_is_made_with_mode_0755(tmp_path: Path) -> None:
    DaemonSocket(tmp_path / "new" / "daemon.sock").close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755 & ~_umask()


@as_root
def test_a_foreign_user_is_closed_at_once_and_counted(tmp_path: Path) -> None:
    port = _free_port()
    with running(tmp_path / "run", daemon={"metrics": f"127.0.0.1:{port}"}) as daemon:
        _let_everybody_reach(daemon.socket)
        assert _bytes_for(daemon, FOREIGN) == 0
        daemon.wait_for_event(lambda e: e["event"] == f"refused a connection of uid {FOREIGN}")
        assert daemon.ask("limit=5")["time_limit"] == "5"
        counted = 'connections_closed_total{why="foreign_user"} 1.0'
        assert counted in _scraped(port, until=counted)


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
    ("user", "uid"),
    [("root", 0), ("64030", 64030), ("slurm(64030)", 64030), ("no-such-user", None)],
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
        # An answer is counted once it is sent, and another thread reads one metric after the other.
        _scraped(port, until="answer_seconds_count 5.0")
        shown = _scraped(port, until="answer_seconds_count 5.0")
    for counted in (
        'requests_total{outcome="decided"} 3.0',
        'requests_total{outcome="failed"} 1.0',
        'requests_total{outcome="malformed"} 1.0',
        'limits_set_total{gpu="a100",tier="model"} 3.0',
        "answer_seconds_count 5.0",
        'predictor_info{version="stand-in"} 1.0',
        "snapshot_failures 0.0",
    ):
        assert f"precision_time_slurm_{counted}" in shown
    age = next(t for t in shown.splitlines() if "snapshot_age_seconds " in t and t[0] != "#")
    assert 0 <= float(age.split()[1]) < START_S


def _scraped(port: int, until: str) -> str:
    """The metrics, once they hold a text or enough time has passed."""
    deadline = time.monotonic() + START_S
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as reply:
            shown = str(reply.read().decode())
        if until in shown or time.monotonic() > deadline:
            return shown
        time.sleep(0.05)


def test_a_slow_reader_of_metrics_delays_no_answer(tmp_path: Path) -> None:
    port = _free_port()
    metrics = {"metrics": f"127.0.0.1:{port}"}
    with running(tmp_path / "run", daemon=metrics) as daemon, socket.socket() as slow:
        slow.connect(("127.0.0.1", port))
        slow.sendall(b"GET /met")
        assert daemon.ask("limit=5")["time_limit"] == "5"
        assert "requests_total" in _scraped(port, until="requests_total")


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_impossible_metrics_address_is_named_at_start(tmp_path: Path, address: str) -> None:
    daemon = DaemonProcess(tmp_path / "run", daemon={"metrics": address})
    assert daemon.launch().wait(START_S) != 0
    daemon.close()
    assert f"daemon.metrics={address!r}" in daemon.log_file.read_text()


def _bytes_for(daemon: DaemonProcess, uid: int) -> int:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            AS_ANOTHER_USER.format(uid=uid),
            str(daemon.socket),
            line(comment="limit=5").hex(),
        ],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def test_a_child_that_reads_nothing_does_not_stop_the_daemon() -> None:
    child, channel = started(["sleep", "60"])
    try:
        with pytest.raises(OSError, match="unavailable"):
            channel.send(bytes(16 * 2**20))
    finally:
        child.kill()
        child.wait()
        channel.close()
