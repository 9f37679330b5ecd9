"""A real control plane for the tests, of the programs in KUBE_ASSETS_DIR.

PRECISION_TIME_REQUIRE with the word ``kube`` in it makes a missing one a failure, not a skip.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart_render import HELM, LIBRARY

from predictor.estimate.fitting import Fitted

from .control_plane import ControlPlane, missing


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane that all tests share."""
    assets = os.environ.get("KUBE_ASSETS_DIR")
    reason = missing(assets) or _lacking()
    if reason and "kube" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
        pytest.fail(f"PRECISION_TIME_REQUIRE wants a control plane: {reason}")
    if reason or assets is None:
        pytest.skip(str(reason))
    _fitted: Fitted = request.getfixturevalue("fitted")
    home: Path = request.getfixturevalue("session_home")
    with ControlPlane(Path(assets), home) as started:
        yield started


def _lacking() -> str | None:
    if not shutil.which("openssl"):
        return "no openssl on the PATH"
    return None if HELM or LIBRARY else "no Helm: pip install helm-python-sdk"


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane for one test, empty at first and afterwards."""
    yield control_plane
    control_plane.clear()
