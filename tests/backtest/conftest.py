"""A small generated workload."""

from __future__ import annotations

import pytest
from sample_cluster.generate import generate

from predictor.site.backtest.workload import LimitBounds, ReplayJobs, workload_of_runs
from predictor.site.replay import Pool

POOLS = (
    Pool(name="a100-sxm4-80gb", gpus=32, gpus_per_node=8),
    Pool(name="v100-sxm2-16gb", gpus=16, gpus_per_node=8),
)


@pytest.fixture(scope="session")
def work() -> ReplayJobs:
    runs = generate(seed=3, days=3, pools=POOLS)
    return workload_of_runs(runs, pools=POOLS, bounds=LimitBounds())
