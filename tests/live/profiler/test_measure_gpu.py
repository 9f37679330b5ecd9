"""benchmarks/measure_gpu.sh on this CPU: pieces, kill -9, another machine, no torch, no device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from profiled import operator_rows

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "measure_gpu.sh"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As little as a bare machine has: a path, and an empty home."""
    (tmp_path / "home").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "PAGE_S": "1",
    }


def started(environment: Mapping[str, str], *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_killed_piece_is_gone_on_with_on_another_machine(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    here, there = tmp_path / "here" / "cpu", tmp_path / "there" / "cpu"
    first = started(environment, here, "cpu", 2)
    archive = here.with_name("cpu.tar.gz")
    end = time.monotonic() + 400
    while time.monotonic() < end and not (archive.exists() and rows_of(archive)):
        time.sleep(1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    before = rows_of(archive)
    assert before
    there.parent.mkdir()
    archive.rename(there.with_name("cpu.tar.gz"))
    second = started(environment, there, "cpu", 0.7)
    said = second.communicate(timeout=500)[0]
    assert "piece 1 took" in said
    assert "rows more" in said
    ids = [row["id"] for row in operator_rows(there)]
    assert len(ids) == len(set(ids)) >= before - 1  # the last line may have been half a row
    assert json.loads((there / "manifest.json").read_text())


def rows_of(archive: Path) -> int:
    """Operator rows in an archive that may be replaced meanwhile."""
    with tarfile.open(archive) as file:
        tables = [file.extractfile(m) for m in file.getmembers() if "/operators/" in m.name]
        return sum(table.read().count(b"\n") - 1 for table in tables if table is not None)


def test_a_device_that_is_not_there_ends_at_once(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = started(environment, tmp_path / "gpu", "cuda:7", 5)
    said = found.communicate(timeout=300)[0]
    assert found.returncode == 2
    assert "cuda:7" in said
    assert said.count("piece") == 2  # began and ended, once


def test_a_python_without_torch_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages
    bare.chmod(0o755)
    found = started({**environment, "PYTHON": str(bare)}, tmp_path / "gpu", "cpu", 5)
    assert "has no torch: name one that has" in found.communicate(timeout=60)[0]
    assert found.returncode == 2
