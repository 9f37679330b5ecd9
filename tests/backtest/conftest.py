"""A small generated workload with out-of-sample predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sample_cluster.generate import Sample, sample, workload_of_sample
from sample_cluster.out_of_sample import held_out_predictions

from predictor.estimate.residual.novelty import Tier
from predictor.site.backtest.workload import Workload
from predictor.site.replay import Pool

if TYPE_CHECKING:
    from predictor.estimate.fitting import Fitted

POOLS = (
    Pool(name="a100-sxm4-80gb", gpus=32, gpus_per_node=8),
    Pool(name="v100-sxm2-16gb", gpus=16, gpus_per_node=8),
)


@pytest.fixture(scope="session")
def drawn(fitted: Fitted) -> Sample:
    rows = [priced.measurement for priced in fitted.priced]
    return sample(seed=3, days=3, pools=POOLS, rows=rows)


@pytest.fixture(scope="session")
def work(fitted: Fitted, drawn: Sample) -> Workload:
    return workload_of_sample(drawn, held_out_predictions(fitted, Tier.RUN))
