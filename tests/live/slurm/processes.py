"""Daemons of a bench: started under a supervisor, watched, and stopped by their own PID."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SUPERVISOR = Path(__file__).with_name("supervisor.py")
POLL_S = 0.02
PORTS = range(10_240, 32_000)  # below those the kernel gives to outgoing connections


class BenchError(Exception):
    """The bench, not what is tested on it, does not work."""


class Daemon:
    """One process with its log; ``output`` holds what it writes to its standard streams."""

    def __init__(self, name: str, output: Path, logs: Sequence[Path] = ()) -> None:
        self.name = name
        self.output = output
        self.logs = (*logs, output)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], env: Mapping[str, str], *, grace_s: float = 5.0) -> None:
        """Start it; ``grace_s`` is how long stop() waits before it kills."""
        command = [sys.executable, "-I", "-S", str(SUPERVISOR), str(grace_s), *argv]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """True until it has ended, whoever ended it."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """PID of the daemon itself, not of its supervisor; raises BenchError once it ended."""
        assert self._process is not None, f"{self.name} was never started"
        return self.child_of(self._process.pid)

    def child_of(self, pid: int) -> int:
        """PID of the first child of one of its processes; raises BenchError where it has none."""
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _parent(entry) == pid:
                return int(entry)
        raise BenchError(self.failure("has no process"))

    def wait_until(
        self, ready: Callable[[], bool], timeout_s: float = 60.0, poll_s: float = POLL_S
    ) -> None:
        """Wait for it to be ready; raises BenchError with its last log lines."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise BenchError(self.failure("ended"))
            if time.monotonic() > deadline:
                raise BenchError(self.failure(f"is not ready after {timeout_s:g} s"))
            time.sleep(poll_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon itself."""
        os.kill(self.pid, number)

    def ask_to_stop(self) -> None:
        """Tell it to end, without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> int | None:
        """End it and all that descends from it; its exit code, None if it never started."""
        if self._process is None:
            return None
        self.ask_to_stop()
        code = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None
        return code

    def failure(self, what: str) -> str:
        """A message that ends in the last lines of the logs."""
        code = self._process.poll() if self._process else None
        status = "" if code is None else f" (exit code {code})"
        tails = [f"{path.name}:\n{text}" for path in self.logs if (text := tail(path))]
        return "\n".join([f"{self.name} {what}{status}", *tails])


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log; empty if there is none."""
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now; those of two workers of pytest never meet.

    Drawn by the system's randomness: trainers seed Python's own, alike in every process.
    """
    found: list[int] = []
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = PORTS[worker % 8 :: 8]
    for port in random.SystemRandom().sample(own, len(own)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BenchError(f"only {len(found)} of {count} ports between {PORTS} are free")


def processes_of(directory: Path) -> list[str]:
    """``PID command`` of every live process that names a directory in its words or environment."""
    sought = os.fsencode(directory)
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes()
            environment = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue
        if int(entry) != os.getpid() and (sought in words or sought in environment):
            found.append(f"{entry} {words.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def _parent(pid: str) -> int | None:
    try:
        return int(Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None
