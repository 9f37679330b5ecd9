"""Robust non-linear least squares for a handful of constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .work import Floats

STEP, ITERATIONS = 1e-4, 25


def robust_fit(
    residuals: Callable[[Floats], Floats], prior: Floats, deviation: Floats, *, scale: float = 0.1
) -> Floats:
    """Constants that minimise sum soft-L1(residuals / scale) plus a Gaussian prior.

    Levenberg-Marquardt on iteratively reweighted residuals. ``residuals`` maps constants (p,) to
    log errors (n,); ``prior`` and ``deviation`` (p,) are mean and standard deviation of the
    prior. Returns the constants (p,).
    """
    x, damping = prior.astype(float).copy(), 1e-2
    r = residuals(x)
    cost = _cost(r, x, prior, deviation, scale)
    for _ in range(ITERATIONS):
        jacobian = _jacobian(residuals, x, r)
        weight = 1.0 / np.sqrt(1.0 + (r / scale) ** 2) / scale**2
        precision = deviation**-2
        normal = jacobian.T @ (jacobian * weight[:, None]) + np.diag(precision)
        gradient = jacobian.T @ (weight * r) + precision * (x - prior)
        gain = 0.0
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            trial = np.clip(x + step, prior - 6 * deviation, prior + 6 * deviation)
            r_trial = residuals(trial)
            trial_cost = _cost(r_trial, trial, prior, deviation, scale)
            if trial_cost < cost:
                gain, x, r, cost = cost - trial_cost, trial, r_trial, trial_cost
                damping = max(damping / 5, 1e-6)
                break
            damping *= 5
        if gain < 1e-5 * cost:
            break
    return x


def _cost(r: Floats, x: Floats, prior: Floats, deviation: Floats, scale: float) -> float:
    data = 2.0 * (np.sqrt(1.0 + (r / scale) ** 2) - 1.0)
    return float(data.sum() + (((x - prior) / deviation) ** 2).sum())


def _jacobian(residuals: Callable[[Floats], Floats], x: Floats, r: Floats) -> Floats:
    columns = []
    for i in range(len(x)):
        shifted = x.copy()
        shifted[i] += STEP
        columns.append((residuals(shifted) - r) / STEP)
    return np.stack(columns, axis=1)
