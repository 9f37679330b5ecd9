"""The sources of the shipped measurements taken for sites: how far a few runs of their own go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..fitting import Fitted
from .figures import Figure
from .validator import Validator

PROTOCOL = "unseen source"


def site_figures(
    fitted: Fitted, progress: Callable[[str], None] = lambda _stage: None
) -> list[Figure]:
    """Every source left out, but for 0, 1 or 3 of its runs, chosen at random, per stack and GPU.

    Only rows of models that other sources measured too; rows that were kept are not scored.
    """
    return unseen_sources(Validator(fitted), progress)


def unseen_sources(
    v: Validator, progress: Callable[[str], None] = lambda _stage: None
) -> list[Figure]:
    """The same, of a validator."""
    progress("unseen sources")
    unseen = v.unseen_source()
    elsewhere = np.isfinite(unseen)
    figures = [v.figure(PROTOCOL, "full", unseen, elsewhere)]
    for name, within, runs in (
        ("1 run per stack and GPU", v.stacks(), 1),
        ("3 runs per stack and GPU", v.stacks(), 3),
        ("1 run per model, stack and GPU", v.stacks(by_model=True), 1),
        ("3 runs per model, stack and GPU", v.stacks(by_model=True), 3),
    ):
        mean = v.with_runs(("source",), within, runs)
        figures.append(v.figure(f"{PROTOCOL} + {name}", "full", mean, elsewhere))
    return figures
