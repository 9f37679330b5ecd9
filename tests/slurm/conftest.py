"""What the decision tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clusters import cluster

from predictor.estimate.fitting import Fitted
from predictor.identify.identify import identify
from slurm_plugin.cluster import Cluster
from slurm_plugin.config import policy_of
from slurm_plugin.decide import SlurmDecider

Decide = Callable[..., SlurmDecider]


@pytest.fixture(scope="session")
def decider(fitted: Fitted) -> Decide:
    """Makes a Decider of a policy in plain values and a cluster."""
    # As the daemon does: the bound on processor time is not for first calls, which read tables.
    identify(comment="model=resnet50 batch=8", script="#!/bin/sh\npython train.py --amp\n")

    def make(view: Cluster | None = cluster(), **policy: Any) -> SlurmDecider:  # noqa: B008
        return SlurmDecider(fitted.predictor, policy_of(policy), view, version="test")

    return make
