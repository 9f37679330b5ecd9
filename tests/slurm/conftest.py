"""What the decision tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clusters import cluster, policy_of

from predictor.estimate.fitting import Fitted
from slurm_plugin.cluster import Cluster
from slurm_plugin.decide import SlurmDecider

Decide = Callable[..., SlurmDecider]


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """First calls read tables, and a collection passes over all that the tests hold."""
    monkeypatch.setattr(SlurmDecider, "read_cpu_s", 60.0)


@pytest.fixture(scope="session")
def decider(fitted: Fitted) -> Decide:
    """Makes a Decider of a policy in plain values and a cluster."""

    def make(view: Cluster | None = cluster(), **policy: Any) -> SlurmDecider:  # noqa: B008
        return SlurmDecider(fitted.predictor, policy_of(policy), view, version="test")

    return make
