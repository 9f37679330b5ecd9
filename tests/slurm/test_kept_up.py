"""The daemon's parent: what decides is started again where it crashes, and ends as it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from slurm_plugin.cli import daemon
daemon.BETWEEN_CRASHES_S = 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
lives = Path(sys.argv[1])
def serve():
    with lives.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    {body}
daemon.kept_up(serve, lambda name: print("ended by", name, flush=True))
"""


def _run(lives: Path, body: str) -> subprocess.Popen[str]:
    program = PROGRAM.replace("{body}", body)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(lives)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_a_crash_is_followed_by_another_start(tmp_path: Path, name: str) -> None:
    first = f"if len(lives.read_text().split()) == 1: os.kill(os.getpid(), signal.{name})"
    process = _run(tmp_path / "lives", first)
    said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == (f"ended by {name}\n", 0)
    assert len(set((tmp_path / "lives").read_text().split())) == 2


def test_an_error_of_ours_is_not_repeated(tmp_path: Path) -> None:
    process = _run(tmp_path / "lives", "sys.exit(3)")
    said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == ("", 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whoever_is_told_to_end_ends_its_child(tmp_path: Path, number: signal.Signals) -> None:
    process = _run(tmp_path / "lives", "print('up', flush=True); time.sleep(600)")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)  # its end of the pipe is closed by the child too
    assert "ended by" not in said


def test_a_parent_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    process = _run(tmp_path / "lives", "print('up', flush=True); time.sleep(600)")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
