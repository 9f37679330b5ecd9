"""Python programs as processes of their own, forked from one that has imported what they import.

Starting Python and importing takes most of the processor time of a server that lives for a moment.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

SHARED = Path(__file__).parent


class Forked:
    """One process, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.asked({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """A process that has run the imports of a script, and forks."""

    def __init__(self, script: Path) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.communicate)

    def asked(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


nursery = cache(Nursery)


def forked(
    script: Path, *arguments: str, log: Path, environment: Mapping[str, str] = os.environ
) -> Forked:
    """``python SCRIPT ARGUMENTS >>LOG 2>&1``, of which only the part behind the imports is new."""
    log.touch()
    told = {"arguments": arguments, "log": str(log), "environment": dict(environment)}
    return Forked(nursery(script), nursery(script).asked(told))


def _serve(script: str) -> None:
    """Fork for each request on stdin, and tell exit codes; a child returns, to be the script."""
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="imports")
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
        elif pid := os.fork():
            print(json.dumps(pid), flush=True)
        else:
            _become(script, **request)
            return
    os._exit(0)


def _become(script: str, arguments: list[str], log: str, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [script, *arguments]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(written, number)


if __name__ == "__main__":
    _serve(sys.argv[1])
    runpy.run_path(sys.argv[0], run_name="__main__")
