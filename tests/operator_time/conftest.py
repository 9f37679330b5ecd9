"""The shipped operator times, and how far those fitted without some rows are off."""

from __future__ import annotations

import pytest

from predictor.estimate.store import load_predictor
from predictor.evaluation.protocols import evaluate_operator_times
from predictor.evaluation.validator import OperatorEvaluation
from predictor.physics.operator_time import OperatorTimes
from profiles.gpus import gpus
from profiles.tables import operators


@pytest.fixture(scope="session")
def times() -> OperatorTimes:
    """A slow test compares what is shipped with a fit of today's tables."""
    return load_predictor("shipped").steps.operators


@pytest.fixture(scope="session")
def evaluation() -> OperatorEvaluation:
    return evaluate_operator_times(operators(), gpus(), architectures=("sm70", "sm80"))
