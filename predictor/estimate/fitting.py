"""Fits a predictor from ``profiles/`` and the profile directories added to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

import profiles
from profiles.gpus import gpus
from profiles.joined import collectives, operators

from ..errors import GraphError, JobError, ProfileError
from ..physics.collectives import CollectiveTimes
from ..physics.operator_time import OperatorTimes
from ..physics.step import StepModel, StepTime
from .assumptions import as_priced
from .core import Predictor
from .intervals import Intervals, calibrate
from .measurement import Measurement, Unreadable, shipped
from .residual.features import Features, features, without_precision
from .residual.kernel import Floats, Hyperparameters
from .residual.model import FittedResidual, HyperparameterSets, fit_residual
from .residual.novelty import Tier, alike

HYPERPARAMETERS = Path(profiles.__file__).parent / "hyperparameters.json"

# Below this many measurements starting worker processes costs more than it saves.
WORTH_WORKERS, WORKERS = 1000, 2

Progress = Callable[[str, float], None]


def quiet(_stage: str, _share: float) -> None:
    """Progress that says nothing."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A measurement with its physical price and features."""

    measurement: Measurement
    step: StepTime
    row: Features


@dataclass(frozen=True, slots=True)
class Fitted:
    """A predictor, and what it was fitted on: neither rows nor residual of one that was stored."""

    predictor: Predictor
    priced: tuple[Priced, ...]
    residual: FittedResidual | None = None
    unreadable: tuple[Unreadable, ...] = ()


def fit_steps() -> StepModel:
    """The physical model from operator and collective tables."""
    return StepModel(
        OperatorTimes.fit(operators(), gpus()), CollectiveTimes.fit(collectives(), gpus())
    )


def price(
    steps: StepModel, measurements: Sequence[Measurement], *, blind: bool = False
) -> tuple[list[Priced], list[Unreadable]]:
    """Physical price and features of each measurement; those without a graph come second.

    Many are shared among WORKERS processes of joblib; rows stay in order.
    """
    if len(measurements) < WORTH_WORKERS:
        return _priced(steps, measurements, blind)
    size = -(-len(measurements) // WORKERS)
    parts = [measurements[i : i + size] for i in range(0, len(measurements), size)]
    done = Parallel(n_jobs=WORKERS)(delayed(_priced)(steps, part, blind) for part in parts)
    return [p for part, _ in done for p in part], [u for _, part in done for u in part]


def _priced(
    steps: StepModel, measurements: Sequence[Measurement], blind: bool
) -> tuple[list[Priced], list[Unreadable]]:
    priced: list[Priced] = []
    failed: list[Unreadable] = []
    for measurement in measurements:
        job = without_precision(measurement.job) if blind else measurement.job
        try:
            step = steps.price(as_priced(job))
        except (GraphError, JobError) as error:
            failed.append(Unreadable(measurement.id, str(error), measurement.row))
            continue
        priced.append(Priced(measurement, step, features(job, step)))
    return priced, failed


def targets(priced: Sequence[Priced]) -> Floats:
    """log(measured / physical) of each row, (n,)."""
    return np.array([np.log(p.measurement.step_s / p.step.step_s) for p in priced])


@cache
def stored_hyperparameters() -> HyperparameterSets:
    """Those that ``tools/learn_hyperparameters.py`` learned and stored beside the tables."""
    try:
        raw = json.loads(HYPERPARAMETERS.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ProfileError(f"{HYPERPARAMETERS.name} is missing from profiles/") from error
    return HyperparameterSets(Hyperparameters(**raw["known"]), Hyperparameters(**raw["novel"]))


def fit(measurements: Sequence[Measurement] | None = None, *, progress: Progress = quiet) -> Fitted:
    """Fit everything; ``measurements`` default to those shipped.

    ``progress`` is called with a stage name and the share done.
    """
    progress("operator and collective tables", 0.0)
    steps = fit_steps()
    progress("pricing measurements", 0.15)
    priced, unreadable = price(steps, shipped() if measurements is None else measurements)
    progress("residual", 0.45)
    return fit_priced(steps, priced, unreadable, progress=progress)


def fit_priced(
    steps: StepModel,
    priced: Sequence[Priced],
    unreadable: Sequence[Unreadable] = (),
    *,
    hyper: HyperparameterSets | None = None,
    progress: Progress = quiet,
) -> Fitted:
    """Fit residual and intervals to measurements already priced."""
    y = targets(priced)
    fitted = fit_residual([p.row for p in priced], y, hyper or stored_hyperparameters())
    progress("intervals", 0.95)
    intervals = calibrate_held_out(fitted, y)
    predictor = Predictor(steps, fitted.residual, intervals)
    progress("done", 1.0)
    return Fitted(predictor, tuple(priced), fitted, tuple(unreadable))


def calibrate_held_out(
    fitted: FittedResidual, y: Floats, used: NDArray[np.bool_] | None = None
) -> Intervals:
    """Intervals of every tier from the held-out errors of ``used`` rows (default: all).

    Of new sites each source counts alike, however many rows it has, and so each model of new ones.
    """
    at = np.flatnonzero(np.ones(len(y), dtype=bool) if used is None else used)
    errors = {
        tier.value: (y[at] - held.mean[at], held.deviation[at])
        for tier, held in fitted.held_out.items()
    }
    table = fitted.residual.known.table.take(at)
    alone = {Tier.SITE: "source", Tier.MODEL: "model"}
    return calibrate(errors, {tier: alike(table, name) for tier, name in alone.items()})
