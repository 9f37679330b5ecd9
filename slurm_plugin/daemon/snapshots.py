"""The newest view of Slurm, read by a child process so that no answer waits for it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO

from ..cluster import Cluster, SlurmJob, SlurmNode
from ..config import Slurm
from . import frames

CHILD = (sys.executable, "-P", "-m", "slurm_plugin.daemon.snapshot_child")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
COMMANDS = 8  # a view is several commands, each with its own timeout
BREATH_S = 0.002
_log = logging.getLogger(__name__)


class Snapshots:
    """Views of Slurm from a child that is started again, ever later, when it ends.

    ``latest`` is None until the first arrives; ``settled`` is set by the first view or failure.
    ``arrived`` is called with each view, in the thread that reads them.
    """

    def __init__(
        self,
        policy: Slurm,
        arrived: Callable[[Cluster], None] = lambda _: None,
        command: Sequence[str] = CHILD,
    ) -> None:
        self.latest: Cluster | None = None
        self.failures = 0
        self.settled = threading.Event()
        self.child: subprocess.Popen[bytes] | None = None
        self._policy = policy
        self._arrived = arrived
        self._command = tuple(command)
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
        with subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as child:
            self.child, self._heard_s = child, time.monotonic()
            if self._stop.is_set():
                self._kill()
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                child.stdin.write(self._policy.model_dump_json().encode() + b"\n")
                child.stdin.flush()
                while True:
                    self._read_view(child.stdout)
            except (EOFError, BrokenPipeError):
                self._kill()
        if not self._stop.is_set():
            self._failed(f"the process that reads Slurm ended with code {child.returncode}")

    def _read_view(self, pieces: IO[bytes]) -> None:
        nodes: list[SlurmNode] = []
        jobs: list[SlurmJob] = []
        while True:
            frame = frames.read(pieces)
            self._heard_s = time.monotonic()
            match frame:
                case frames.SomeNodes(found):
                    nodes += found
                case frames.SomeJobs(queued):
                    jobs += queued
                case frames.RestOfView(cluster):
                    self._take(replace(cluster, nodes=tuple(nodes), queue=tuple(jobs)))
                    return
                case frames.NoView(text):
                    self._failed(text)
                    return
            time.sleep(BREATH_S)  # whoever waits to answer goes first

    def _take(self, cluster: Cluster) -> None:
        self.latest, self._pause_s = cluster, FIRST_PAUSE_S
        self.settled.set()
        if self._trouble:
            _log.info("Slurm can be read again")
            self._trouble = ""
        self._arrived(cluster)

    def _failed(self, text: str) -> None:
        self.failures += 1
        self.settled.set()
        if text != self._trouble:  # said when it begins, not with every view that fails
            _log.warning("no view of Slurm: %s", text)
        self._trouble = text

    def _watch(self) -> None:
        """End a child that says nothing for longer than all its commands may take."""
        longest_s = self._policy.refresh_s + COMMANDS * self._policy.command_timeout_s
        while not self._stop.wait(1.0):
            if time.monotonic() - self._heard_s > longest_s:
                self._kill()

    def _kill(self) -> None:
        """End the child, and the command of Slurm it waits for."""
        child = self.child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
