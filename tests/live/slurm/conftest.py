"""Real Slurm for the tests: the machine's own, and one below SLURM_PREFIX if that is set.

PRECISION_TIME_REQUIRE with the word ``slurm`` in it makes a missing Slurm a failure, not a skip.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from site_runs import to_their_limits

from predictor.estimate.fitting import Fitted
from predictor.site.calibration.site_state import SiteState, write_state

from .cluster import SlurmCluster
from .daemon import PATIENT, DecisionDaemon, install_hook
from .installation import Installation


@pytest.fixture(scope="session", params=["debian", "prefix"])
def installation(request: pytest.FixtureRequest) -> Installation:
    """Each Slurm to test with; skipped with the reason where there is none."""
    if request.param == "debian":
        return _usable(Installation())
    prefix = os.environ.get("SLURM_PREFIX")
    if not prefix:
        pytest.skip("SLURM_PREFIX names no further Slurm to test with")
    return _usable(Installation(Path(prefix)))


@pytest.fixture(scope="session")
def slurm(installation: Installation) -> Iterator[SlurmCluster]:
    """A cluster with accounting that all tests of a Slurm share."""
    with SlurmCluster(installation) as cluster:
        yield cluster


@pytest.fixture
def bench(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """The shared cluster for one test, whose jobs and hook go when it ends."""
    hook = slurm.hook
    yield slurm
    slurm.clear()
    if slurm.hook != hook:
        slurm.set_hook(hook)


@pytest.fixture(scope="module")
def deciding(slurm: SlurmCluster, fitted: Fitted, session_home: Path) -> Iterator[DecisionDaemon]:
    """The shipped hook in the shared cluster, for the tests of a module, and the daemon it asks."""
    with DecisionDaemon(slurm, session_home) as daemon:
        install_hook(slurm, daemon.socket, **PATIENT)
        yield daemon
        slurm.set_hook(slurm.bench.hook)


@pytest.fixture
def policy(deciding: DecisionDaemon) -> Iterator[Callable[..., None]]:
    """Change sections of the policy for one test: ``policy(placement={"method": "gres"})``."""
    yield deciding.set_policy
    deciding.set_policy()


@pytest.fixture(scope="session")
def user() -> str | None:
    """An account without rights to submit as; None, whoever runs the tests, if not root."""
    return "daemon" if os.geteuid() == 0 else None  # 26.05 gives jobs of nobody no association


def _usable(installation: Installation) -> Installation:
    reason = installation.missing()
    if reason and "slurm" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
        pytest.fail(f"PRECISION_TIME_REQUIRE wants Slurm: {reason}")
    if reason:
        pytest.skip(f"{reason}; see tools/install_debian_packages.sh")
    return installation


@pytest.fixture
def limits_are_used(home: Path) -> None:
    """At this site jobs of root are known to take all of their limits, as slurmctld plans them."""
    home.mkdir(mode=0o700)
    write_state(SiteState((), to_their_limits("root")))


@pytest.fixture
def here(bench: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The bench, which this process's own commands reach too."""
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    return bench
