"""A history in each of the two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, postgres_server

from predictor.site.history.store import History


@pytest.fixture(autouse=True)
def _own_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings or history but those of the test."""
    monkeypatch.delenv("PRECISION_TIME_HISTORY", raising=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server that all tests share, each with a schema of its own."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty history can be made, in each database."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.schema()


@pytest.fixture
def history(url: str) -> Iterator[History]:
    """An empty history in each database."""
    with History.open(url) as store:
        yield store
