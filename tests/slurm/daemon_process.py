"""A daemon as a process of its own: started, asked, signalled, waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlencode

import yaml
from forked import Forked, forked

STAND_IN = Path(__file__).with_name("daemon_stand_in.py")
START_S, STOP_S = 60.0, 30.0
Process = Forked | subprocess.Popen[bytes]


class Notified:
    """A real datagram socket in the place of systemd's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.2)

    def wait_for(self, word: str, process: Process | None = None) -> None:
        """Return once a message with this line has come; fails where the process ends before."""
        until = time.monotonic() + START_S
        while word not in self.seen:
            with contextlib.suppress(TimeoutError):
                self.seen += self._socket.recv(4096).decode().splitlines()
                continue
            assert time.monotonic() < until, f"{word} was not notified, only {self.seen}"
            assert process is None or process.poll() is None, "the daemon has ended"

    def close(self) -> None:
        self._socket.close()


class DaemonProcess:
    """A stand-in daemon in a directory of its own."""

    def __init__(self, directory: Path, arguments: tuple[str, ...] = (), **policy: Any) -> None:
        directory.mkdir(mode=0o755, exist_ok=True)
        self.directory = directory
        self.socket = directory / "daemon.sock"
        self.policy = directory / "policy.yaml"
        self.log_file = directory / "log"
        self.environment: dict[str, str] = {}
        self.arguments = arguments
        self.command: tuple[str, ...] = (sys.executable, str(STAND_IN), str(self.policy))
        self.write_policy(**policy)
        self.notified = Notified(directory / "notify")

    def write_policy(self, **policy: Any) -> None:
        daemon = {"socket": str(self.socket), "metrics": None, "deadline_ms": 5000.0}
        whole = {"site": "first"} | policy
        whole["daemon"] = daemon | policy.get("daemon", {})
        self.policy.write_text(yaml.safe_dump(whole))

    def start(self) -> DaemonProcess:
        """Start it and wait for READY=1."""
        self.launch()
        self.notified.wait_for("READY=1", self.process)
        return self

    def launch(self) -> Process:
        """Start it."""
        environment = os.environ | {"NOTIFY_SOCKET": str(self.notified.path)} | self.environment
        *start, policy = self.command
        self.process: Process
        if start == [sys.executable, str(STAND_IN)]:
            arguments = (policy, *self.arguments)
            self.process = forked(STAND_IN, *arguments, log=self.log_file, environment=environment)
        else:
            with self.log_file.open("ab") as log:
                self.process = subprocess.Popen(self.command, stderr=log, env=environment)
        return self.process

    def connect(self, timeout_s: float = 20.0) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(timeout_s)
        connected.connect(str(self.socket))
        return connected

    @contextmanager
    def talking(self, timeout_s: float = 20.0) -> Iterator[tuple[socket.socket, BinaryIO]]:
        """A connection and what comes back on it, both closed with the block."""
        with self.connect(timeout_s) as connected, connected.makefile("rb") as answers:
            yield connected, answers

    def ask(self, comment: str = "", **fields: str) -> Mapping[str, str]:
        """The answer to one request on a connection of its own."""
        with self.talking() as (connected, answers):
            connected.sendall(line(comment=comment, **fields))
            return read_answer(answers)

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def events(self) -> list[dict[str, Any]]:
        """What it has logged."""
        lines = self.log_file.read_text().splitlines()
        return [json.loads(text) for text in lines if text.startswith("{")]

    def wait_for_event(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event of its log that is meant, once it is there."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            for event in self.events():
                if found(event):
                    return event
            time.sleep(0.05)
        raise AssertionError(f"no such event in {self.log_file.read_text()[-2000:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_S)
        self.notified.close()


@contextmanager
def running(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None, **policy: Any
) -> Iterator[DaemonProcess]:
    """A daemon that is ready, ended with the block."""
    daemon = DaemonProcess(directory, arguments, **policy)
    daemon.environment = dict(environment or {})
    try:
        yield daemon.start()
    finally:
        daemon.close()


def line(**fields: str) -> bytes:
    """A request line."""
    return (urlencode({"v": "1", "user": "ada", "name": "train", **fields}) + "\n").encode()


def read_answer(file: Any) -> Mapping[str, str]:
    """One answer line, which must be whole."""
    text = file.readline()
    assert text.endswith(b"\n"), text
    return dict(parse_qsl(text.decode().rstrip("\n"), keep_blank_values=True))
