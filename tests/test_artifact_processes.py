"""The artifact store under several processes, some of them killed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from predictor.estimate import artifacts

WRITER = """
import sys
import numpy as np
from predictor.estimate import artifacts
print("ready", flush=True)
for i in range(int(sys.argv[1])):
    arrays = {"a": np.full(20_000, i, np.float32), "b": np.full(20_000, i, np.float32)}
    artifacts.use(artifacts.save(arrays, {"i": i}, tables_hash="").version)
    if i % 3 == 2:
        try:
            artifacts.rollback()
        except artifacts.ArtifactError:
            pass
"""

HALF_WAY = """
import sys, time
import numpy as np
from predictor import trusted_files
from predictor.estimate import artifacts
def stop(*_):
    print("half-way", flush=True)
    time.sleep(600)
setattr(trusted_files, sys.argv[1], stop)
version = artifacts.save({"a": np.zeros(1000)}, {}, tables_hash="").version
artifacts.use(version)
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def stored(i: int) -> str:
    """A version like those of the writers, in use."""
    version = artifacts.save({"a": np.full(9, i)}, {"i": i}, tables_hash="").version
    artifacts.use(version)
    return version


def assert_consistent() -> None:
    """Everything stored loads, and is of one piece."""
    for stored in artifacts.versions():
        artifact = artifacts.load(stored.version)
        assert {float(array[0]) for array in artifact.arrays.values()} == {artifact.state["i"]}


class TestSeveralProcesses:
    def test_writers_lose_nothing_and_readers_see_whole_versions(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        writers = [start(WRITER, "12") for _ in range(3)]
        reads = 0
        while any(writer.poll() is None for writer in writers):
            if artifacts.current() != artifacts.shipped().version:
                artifact = artifacts.load()
                assert artifact.arrays["a"][0] == artifact.arrays["b"][-1] == artifact.state["i"]
                reads += 1
        for writer in writers:
            writer.communicate()
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert reads > 0
        assert len(artifacts.versions()) == 36
        assert_consistent()
        assert caplog.text == ""

    def test_writers_killed_at_any_moment_leave_a_usable_store(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        stored(0)
        for delay_s in (0.01, 0.02, 0.03, 0.05, 0.08):
            writer = start(WRITER, "100000")
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(delay_s)
            writer.kill()
            writer.communicate()
            artifacts.load()
            assert_consistent()
        assert caplog.text == ""

    @pytest.mark.parametrize("step", ["create", "publish", "replace_text"])
    def test_killed_between_two_steps_leaves_the_old_in_use(self, home: Path, step: str) -> None:
        old = stored(7)
        writer = start(HALF_WAY, step)
        writer.kill()
        writer.communicate()
        assert artifacts.current() == old
        assert artifacts.load().state == {"i": 7}
        stored(8)
        assert artifacts.load().state == {"i": 8}
        assert list(home.rglob(".draft-*")) == []
