"""The sources of the shipped measurements taken for sites: how far a few runs of their own go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..estimate.fitting import Fitted
from ..estimate.residual.kernel import Floats
from .figures import Figure, summary
from .validator import Mask, Validator

PROTOCOL = "unseen source"
# Which runs a site happens to have matters: 3 of each stack are worth from 18 to 23 % by the draw.
DRAWS = 5


def site_figures(
    fitted: Fitted, progress: Callable[[str], None] = lambda _stage: None
) -> list[Figure]:
    """Every source left out, but for 0, 1 or 3 of its runs per stack and GPU.

    The runs are drawn at random DRAWS times, and the errors of all draws are one sample; ``n`` are
    the rows of one draw on average. Only rows of models that other sources measured too; rows that
    were drawn are not scored.
    """
    validators = [Validator(fitted, seed) for seed in range(DRAWS)]
    first = validators[0]
    progress("unseen sources")
    unseen = first.unseen_source()
    elsewhere = np.isfinite(unseen)
    figures = [first.figure(PROTOCOL, "full", unseen, elsewhere)]
    for name, by_model, runs in (
        ("1 run per stack and GPU", False, 1),
        ("3 runs per stack and GPU", False, 3),
        ("1 run per model, stack and GPU", True, 1),
        ("3 runs per model, stack and GPU", True, 3),
    ):
        progress(name)
        within = first.stacks(by_model=by_model)
        drawn = (v.with_runs(("source",), within, runs) for v in validators)
        figures.append(_figure(f"{PROTOCOL} + {name}", first.y, list(drawn), elsewhere))
    return figures


def _figure(protocol: str, y: Floats, drawn: list[Floats], rows: Mask) -> Figure:
    errors = np.concatenate(list(_errors(y, drawn, rows)))
    found = summary(protocol, "full", errors)
    return Figure(
        protocol, found.method, found.mean, found.median, found.p90, round(found.n / len(drawn))
    )


def _errors(y: Floats, drawn: list[Floats], rows: Mask) -> Iterator[Floats]:
    for mean in drawn:
        usable = np.isfinite(mean) & rows
        yield np.abs(np.expm1(mean - y)[usable])
