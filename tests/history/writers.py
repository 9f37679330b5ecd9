"""Writers of a history in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forked import SHARED, Forked, forked

PROGRAM = Path(__file__).with_name("writer.py")


@dataclass
class Writer:
    """A running writer, and what it prints."""

    process: Forked | subprocess.Popen[str]
    printed: IO[str]

    def said(self) -> Any:
        """The next thing it says."""
        return json.loads(self.printed.readline())

    def all_said(self) -> list[Any]:
        """What it says until its end, which has to be a good one."""
        said = [json.loads(line) for line in self.printed]
        assert self.process.wait() == 0
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def writer(url: str, rows: int, *words: str | int, under: Sequence[str] = ()) -> Iterator[Writer]:
    """A running writer, killed at the end of the block if it has not ended."""
    arguments = (url, str(rows), *map(str, words))
    running = _under(under, arguments) if under else _forked(arguments)
    with running.printed:
        try:
            yield running
        finally:
            running.kill()


def _under(command: Sequence[str], arguments: Sequence[str]) -> Writer:
    process = subprocess.Popen(
        [*command, sys.executable, str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SHARED)},
    )
    assert process.stdout is not None
    return Writer(process, process.stdout)


def _forked(arguments: Sequence[str]) -> Writer:
    with tempfile.TemporaryDirectory() as place:
        printed = Path(place) / "printed"
        os.mkfifo(printed)
        process = forked(PROGRAM, *arguments, log=printed)
        return Writer(process, printed.open())
