"""The live ingest beside ``slurm watch``: a process of its own, so that no limit waits for it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

ENTRY = "from predictor.cli.main import main; main()"
FOLLOW = ("history", "ingest", "slurm", "--follow")
STOP_S = 30.0  # it finishes the batch under way


class HistoryChild:
    """One child, started again where it ended; ``config`` is the policy file it reads."""

    def __init__(self, config: Path | None) -> None:
        given = () if config is None else ("--config", str(config))
        self._command = (sys.executable, "-P", "-c", ENTRY, *FOLLOW, *given)
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self, wanted: bool) -> None:
        """Have it run where it is wanted, and only there; returns at once."""
        running = self._process is not None and self._process.poll() is None
        if wanted and not running:
            # a session of its own: a Ctrl-C at the terminal is for the watcher, which ends both
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, start_new_session=True
            )
        elif running and not wanted:
            self.close()

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        process.wait()
