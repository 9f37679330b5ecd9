"""What every test runs under: a home of its own, and property tests that repeat exactly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session", autouse=True)
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Fitted predictors of this test run; the user's own are neither read nor written."""
    home = tmp_path_factory.mktemp("precision-time")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRECISION_TIME_HOME", str(home))
        yield home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for one test."""
    directory = tmp_path / "home"
    monkeypatch.setenv("PRECISION_TIME_HOME", str(directory))
    return directory
