"""Operator times fitted once on the tables of the repository, and operators to price."""

from __future__ import annotations

import pytest

from predictor.physics.operator_time import OperatorTimes
from predictor.physics.operator_time.evaluate import OperatorEvaluation, evaluate_operator_times
from profiles.gpus import gpus
from profiles.tables import operators


@pytest.fixture(scope="session")
def times() -> OperatorTimes:
    return OperatorTimes.fit(operators(), gpus())


@pytest.fixture(scope="session")
def evaluation() -> OperatorEvaluation:
    return evaluate_operator_times(operators(), gpus(), architectures=("sm70", "sm80"))
