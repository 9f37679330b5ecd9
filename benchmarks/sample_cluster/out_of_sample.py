"""Predictions of measured runs by a predictor that never saw them.

The mean and the deviation of a row come from the closed-form cross-validation of the fit: of tier
``run`` its random fold was left out, of ``site`` every row of its source, and so on (see
``residual.novelty``). Its interval is calibrated on the scores of the other half of the groups, so
its own score is in no quantile either. Hyper-parameters (variances and length scales) have seen
the rows.
"""

from __future__ import annotations

import math

import numpy as np

from predictor.estimate.fitting import Fitted, Priced, targets
from predictor.estimate.intervals import Intervals, calibrate
from predictor.estimate.prediction import Prediction
from predictor.estimate.residual.novelty import GROUPS, Tier, groups, random_folds


def held_out_predictions(fitted: Fitted, tier: Tier, *, seed: int = 0) -> dict[str, Prediction]:
    """A prediction of one step for every fitted row, by its id, as if it were of ``tier``.

    Where nothing else would make the row of that tier (a model that only one source measured is
    new to every other site) it is predicted as a model that nobody measured.
    """
    found: dict[str, Prediction] = {}
    for kind in dict.fromkeys((Tier.MODEL, tier)):
        found |= _of_tier(fitted, kind, seed)
    return found


def _of_tier(fitted: Fitted, tier: Tier, seed: int) -> dict[str, Prediction]:
    held = fitted.residual.held_out[tier]
    usable = np.isfinite(held.mean) & np.isfinite(held.deviation)
    error, half = targets(fitted.priced) - held.mean, _half(fitted, tier, seed)
    of_half = [
        calibrate({tier: (error[usable & side], held.deviation[usable & side])})
        for side in (~half, half)
    ]
    return {
        fitted.priced[row].measurement.id: _prediction(
            fitted.priced[row],
            float(held.mean[row]),
            float(held.deviation[row]),
            tier,
            of_half[int(half[row])],
        )
        for row in np.flatnonzero(usable)
    }


def _half(fitted: Fitted, tier: Tier, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows (n,) of one half; what the tier leaves out together is never in both."""
    table = fitted.residual.residual.known.table
    parts = groups(table, GROUPS[tier]) if tier in GROUPS else random_folds(len(table), len(table))
    half, counts = np.zeros(len(table), dtype=bool), [0, 0]
    order = np.random.default_rng(seed).permutation(len(parts))
    for part in sorted(order, key=lambda at: -len(parts[at])):
        side = int(np.argmin(counts))
        half[parts[part]] = bool(side)
        counts[side] += len(parts[part])
    return half


def _prediction(
    priced: Priced, mean: float, deviation: float, tier: Tier, intervals: Intervals
) -> Prediction:
    correction = math.exp(mean)
    step_s = float(priced.step.step_s * correction)
    return Prediction(
        job=priced.measurement.job,
        step_s=step_s,
        throughput=priced.measurement.job.step_samples / step_s,
        steps=None,
        physical=priced.step,
        correction=correction,
        deviation=deviation,
        tier=tier,
        evidence=(tier.meaning,),
        warnings=(),
        factors=intervals.factors(tier, deviation),
    )
