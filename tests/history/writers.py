"""Writers of a history in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("writer.py")
SHARED = Path(__file__).parents[1] / "shared"


@contextmanager
def writer(
    url: str, rows: int, *words: str | int, under: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A running writer, killed at the end of the block if it has not ended."""
    command = [*under, sys.executable, str(PROGRAM), url, str(rows), *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SHARED)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> Any:
    """The next thing a writer says."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def all_said(process: subprocess.Popen[str]) -> list[Any]:
    """What a writer says until its end, which has to be a good one."""
    output, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]
