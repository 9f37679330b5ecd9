"""What every test runs under: a home of its own, and property tests that repeat exactly."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from predictor.service.process import one_thread_for_algebra
from predictor.trusted_files import exclusive

if TYPE_CHECKING:
    from predictor.estimate.fitting import Fitted

STRIDE = 12  # every 12th shipped run: about 400 of all sources and families

LIVE = Path(__file__).parent / "live"  # real daemons, torch and the libraries around it
LONG = ("test_server_life", "test_daemon", "test_transformers", "test_detection", "test_streams")
REAL_SERVERS = {"browser", "postgres"}  # fixtures that start a program

pytest.register_assert_rewrite("references")  # tests of graphs are made of those there
one_thread_for_algebra()  # threads that wait for a busy core would take most of the time
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a real server, browser or torch: ``make test-live`` runs it.

    Long files stand first, so that none is left over when other processes have ended.
    """
    items.sort(key=lambda item: not item.path.name.startswith(LONG))  # stable
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        database = getattr(item, "callspec", None) and item.callspec.params.get("url")  # type: ignore[attr-defined]
        if LIVE in item.path.parents or fixtures & REAL_SERVERS or database == "postgresql":
            item.add_marker(pytest.mark.live)


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


@pytest.fixture(scope="session")
def fitted(session_home: Path, worker_id: str) -> Fitted:
    """A predictor fitted on a sample of the shipped runs, stored and in use for this test run.

    What takes longest of a fit, to price the runs, is done by the first process that needs it.
    """
    from initial_hyper import initial_sets

    from predictor.estimate import artifacts, store
    from predictor.estimate.fitting import fit_priced, price
    from predictor.estimate.measurement import shipped

    steps = store.load_predictor("shipped").steps
    everybodys = session_home.parents[0 if worker_id == "master" else 1] / "priced"
    with exclusive(everybodys):
        kept = everybodys / "runs.pickle"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(price(steps, shipped()[::STRIDE])))
    priced, unreadable = pickle.loads(kept.read_bytes())
    fitted = fit_priced(steps, priced, unreadable, hyper=initial_sets())
    manifest = store.store(fitted.predictor, {"rows": float(len(fitted.priced))})
    artifacts.use(manifest.version)
    return fitted
