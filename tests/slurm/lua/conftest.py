"""Every promise of the hook holds in each Lua that Slurm is built with."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lua_hook import Hook

INTERPRETERS = ("lua5.1", "lua5.3", "lua5.4")
TIMEOUT_S = 0.05
BREAKER_S = 0.2


def _missing(interpreter: str) -> str | None:
    if shutil.which(interpreter) is None:
        return f"{interpreter} is not installed"
    probe = [interpreter, "-e", 'require("socket.unix")']
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return f"{interpreter} has no luasocket"
    return None


@pytest.fixture(params=INTERPRETERS)
def interpreter(request: pytest.FixtureRequest) -> str:
    """The name of a Lua interpreter with luasocket."""
    name = str(request.param)
    reason = _missing(name)
    if reason and "slurm" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
        pytest.fail(f"PRECISION_TIME_REQUIRE wants Slurm's Lua: {reason}")
    if reason:
        pytest.skip(reason)
    return name


@pytest.fixture
def path() -> Iterator[Path]:
    """Where the daemon's socket belongs: short, for the name of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pt-") as directory:
        yield Path(directory) / "slurm.sock"


@pytest.fixture
def hook(interpreter: str, path: Path) -> Iterator[Hook]:
    """The hook as installed, asking at ``path``, with a short pause after a miss."""
    with Hook(interpreter) as running:
        running.load()
        running.configure(socket=path, timeout=TIMEOUT_S, breaker_s=BREAKER_S)
        yield running
