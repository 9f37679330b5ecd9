"""The newest view of Slurm, read by a process of its own so that no answer waits for it.

That process, ``python -m ...views json|text POLICY CHANNEL``, sends each view twice over: small,
and whole but for its jobs, packed for what decides: the daemon unpacks it in a thread, so that many
nodes never keep it from an answer.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from predictor.service.logs import logging_to

from ..ahead import QueueAhead
from ..cluster import Cluster
from ..config import Slurm
from ..errors import SourceError
from ..sources.text import SlurmSource, take
from . import PACKAGES, started

CHILD = (sys.executable, "-P", "-m", "slurm_plugin.daemon.views")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
COMMANDS = 8  # a view is several commands, each with its own timeout
NICE = 5  # whoever waits to answer goes first
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Snapshots:
    """Views of Slurm from a child that is started again, ever later, when it ends.

    ``latest`` has neither nodes nor queue, ``packed`` is what a decider looks at; None until the
    first arrives. ``settled`` is set by the first view or failure. ``arrived`` is called with both
    in the thread that reads them.
    """

    policy: Slurm
    arrived: Callable[[Cluster, bytes], None] = lambda *_: None
    command: Sequence[str] = CHILD
    log_format: str = "json"

    def __post_init__(self) -> None:
        self.latest: Cluster | None = None
        self.packed: bytes | None = None
        self.failures = 0
        self.settled = threading.Event()
        self.child: subprocess.Popen[bytes] | None = None
        self._command = (*self.command, self.log_format, self.policy.model_dump_json())
        self._stop = threading.Event()
        self._heard_s = time.monotonic()
        self._pause_s = FIRST_PAUSE_S
        self._trouble = ""
        self._threads = [
            threading.Thread(target=target, name=target.__name__, daemon=True)
            for target in (self._follow, self._watch)
        ]

    def start(self) -> None:
        """Start the child."""
        for thread in self._threads:
            thread.start()

    @property
    def age_s(self) -> float:
        """Age of the latest view in seconds, infinity while there is none."""
        return math.inf if self.latest is None else max(0.0, time.time() - self.latest.taken_s)

    def close(self) -> None:
        """End the child and the threads."""
        self._stop.set()
        self._kill()
        for thread in self._threads:
            thread.join(5.0)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._read_one_child()
            except OSError as error:
                self._failed(f"the process that reads Slurm cannot be started: {error}")
            if self._stop.wait(self._pause_s):
                return
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _read_one_child(self) -> None:
        child, channel = started(self._command)
        self.child, self._heard_s = child, time.monotonic()
        if self._stop.is_set():
            self._kill()
        with channel, contextlib.suppress(EOFError, OSError):
            while True:
                self._take(channel.recv())
        self._kill()
        child.wait()
        if not self._stop.is_set():
            self._failed(f"the process that reads Slurm ended with code {child.returncode}")

    def _take(self, said: tuple[Cluster, bytes] | str) -> None:
        self._heard_s = time.monotonic()
        if isinstance(said, str):
            self._failed(said)
            return
        self.latest, self.packed = said
        self._pause_s = FIRST_PAUSE_S
        self.settled.set()
        if self._trouble:
            _log.info("Slurm can be read again")
            self._trouble = ""
        self.arrived(*said)

    def _failed(self, text: str) -> None:
        self.failures += 1
        self.settled.set()
        if text != self._trouble:  # said when it begins, not with every view that fails
            _log.warning("no view of Slurm: %s", text)
        self._trouble = text

    def _watch(self) -> None:
        """End a child that says nothing for longer than all its commands may take."""
        longest_s = self.policy.refresh_s + COMMANDS * self.policy.command_timeout_s
        while not self._stop.wait(1.0):
            if time.monotonic() - self._heard_s > longest_s:
                self._kill()

    def _kill(self) -> None:
        """End the child, and the command of Slurm it waits for."""
        child = self.child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def sent(view: Cluster, ahead: QueueAhead | None = None) -> tuple[Cluster, bytes]:
    """A view as it is sent: without nodes and jobs, and packed without jobs."""
    whole = replace(view, queue=())
    return replace(whole, nodes=()), pickle.dumps((whole, ahead))


def main() -> None:
    """Send views until the daemon is gone."""
    log_format, policy, number = sys.argv[1:]
    os.nice(NICE)
    with logging_to("text" if log_format == "text" else "json", *PACKAGES):
        channel = Connection(int(number))
        threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
        _send_views(channel, Slurm.model_validate_json(policy))


def _send_views(channel: Connection, policy: Slurm) -> None:
    from ..sources.choose import open_source

    source: SlurmSource | None = None
    ahead: QueueAhead | None = None
    while True:
        started_s = time.monotonic()
        try:
            source = open_source(policy) if source is None else source
            view = take(source)
        except SourceError as error:
            channel.send(str(error))
            source = None
        else:
            channel.send(sent(view, ahead))
            try:  # takes seconds for thousands of jobs
                ahead = QueueAhead.of(view)
                channel.send(sent(view, ahead))
            except Exception:
                _log.exception("a queue of %d jobs could not be replayed", len(view.queue))
        time.sleep(max(0.1, policy.refresh_s - (time.monotonic() - started_s)))


def _end_with_parent(channel: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        channel.recv_bytes()
    os._exit(0)


if __name__ == "__main__":
    main()
