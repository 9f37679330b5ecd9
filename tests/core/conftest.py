"""What the topics share: parts of the fitted predictor, and random tables for the residual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from initial_hyper import initial

from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import Measurement, shipped
from predictor.estimate.residual.features import CATEGORIES, NUMBERS, Features, Vocabulary
from predictor.estimate.residual.kernel import Hyperparameters
from predictor.physics.step import StepModel


@pytest.fixture(scope="session")
def steps(fitted: Fitted) -> StepModel:
    return fitted.predictor.steps


@pytest.fixture(scope="session")
def unseen_runs(fitted: Fitted) -> tuple[Measurement, ...]:
    """Shipped runs that the predictor was not fitted on."""
    known = {p.measurement.id for p in fitted.priced}
    return tuple(m for m in shipped() if m.id not in known)


@pytest.fixture(scope="session")
def random_rows() -> Callable[..., list[Features]]:
    """Rows with few values per category, so that every term finds rows that share them."""

    def make(rows: int = 60, seed: int = 0) -> list[Features]:
        rng = np.random.default_rng(seed)
        return [
            Features(
                tuple(f"{name}{rng.integers(3)}" for name in CATEGORIES),
                tuple(rng.normal(size=len(NUMBERS)).tolist()),
                frozenset(
                    o for o in ("amp=O1", "dali=on", "graphs=on", "xla=on") if rng.random() < 0.5
                ),
            )
            for _ in range(rows)
        ]

    return make


@pytest.fixture(scope="session")
def vocabulary(random_rows: Callable[..., list[Features]]) -> Vocabulary:
    """Of all values that random rows have."""
    return Vocabulary.of(random_rows(200))


@pytest.fixture(scope="session")
def random_hyper() -> Callable[[int], Hyperparameters]:
    """Hyper-parameters that differ from term to term."""

    def make(seed: int = 0) -> Hyperparameters:
        rng = np.random.default_rng(seed)
        start = initial()
        return Hyperparameters(
            {name: float(rng.uniform(0.02, 0.5)) for name in start.deviations},
            {
                name: {scale: float(rng.uniform(0.3, 6.0)) for scale in scales}
                for name, scales in start.scales.items()
            },
            0.05,
            noise_by_source={"source0": 0.5, "source1": 3.0},
        )

    return make
