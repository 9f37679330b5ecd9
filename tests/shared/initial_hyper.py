"""Hyper-parameters with every term of the kernel alike."""

from __future__ import annotations

from learn_hyperparameters import START_SCALES

from predictor.estimate.residual.kernel import TERMS, Hyperparameters
from predictor.estimate.residual.model import HyperparameterSets


def initial() -> Hyperparameters:
    """Every term alike."""
    return Hyperparameters(
        {t.name: 0.15 for t in TERMS},
        {t.name: {s: START_SCALES[s] for s in t.scales} for t in TERMS if t.scales},
        0.05,
    )


def initial_sets() -> HyperparameterSets:
    """The same for known configurations and for new models and sites."""
    both = initial()
    return HyperparameterSets(both, both)
