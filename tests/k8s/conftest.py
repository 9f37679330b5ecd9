"""What the tests of reviews share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """The first answers of a process that nobody made ready take their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("k8s_extender.admission.review.BUDGET_S", 60.0)
        patch.setattr("k8s_extender.server.verbs.BUDGET_S", 60.0)
        yield
