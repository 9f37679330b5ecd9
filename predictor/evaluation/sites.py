"""The sources of the shipped measurements taken for sites: how far a few runs of their own go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..estimate.fitting import Fitted, calibrate_held_out
from ..estimate.intervals import Intervals
from ..estimate.residual.features import MISSING, NUMBERS
from ..estimate.residual.kernel import Floats
from ..estimate.residual.model import kind_of
from ..estimate.residual.novelty import Tier
from .scores import Figure, IntervalCoverage, SourceFigure, summary
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
    unseen, elsewhere = first.unseen_source(), first.elsewhere()
    every = np.ones(len(unseen), dtype=bool)
    figures = [
        first.figure(PROTOCOL, "full", unseen, elsewhere),
        first.figure(f"{PROTOCOL}, models nobody else measured too", "full", unseen, every),
    ]
    figures += _eras(first, unseen)
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


def source_figures(v: Validator) -> Iterator[SourceFigure]:
    """Each source as a new site: errors, and intervals calibrated on the other sources alone."""
    held = v.fitted.residual.held_out[Tier.SITE]
    rows = [p.row for p in v.fitted.priced]
    for source in sorted(set(v.source)):
        mine = v.source == source
        found = calibrate_held_out(v.fitted.residual, rows, v.y, ~mine)
        kinds = np.array([kind_of(Tier.SITE, row) for row in rows])
        inside, widths = covered(found, kinds, 0.95, v.y - held.mean, held.deviation, mine)
        yield SourceFigure(
            v.figure(source, "full", held.mean, mine),
            IntervalCoverage(
                source, 0.95, float(inside.mean()), float(np.median(widths)), len(inside)
            ),
        )


def covered(
    intervals: Intervals,
    kinds: NDArray[np.str_],
    level: float,
    error: Floats,
    deviation: Floats,
    rows: Mask,
) -> tuple[Mask, Floats]:
    """Whether each of some rows lies in its interval, and the half width of that as a ratio."""
    used = rows & np.isfinite(error) & np.isfinite(deviation) & np.isin(kinds, [*intervals.scores])
    tail = (1 - level) / 2
    low, high = (
        np.array([intervals.quantile(str(kind), part) for kind in kinds[used]]) * deviation[used]
        for part in (tail, 1 - tail)
    )
    inside = (error[used] >= low) & (error[used] <= high)
    return inside, (np.exp(high) - np.exp(low)) / 2


def _eras(v: Validator, unseen: Floats) -> Iterator[Figure]:
    """By the date of the software, where a row tells it."""
    date = v.table.numbers[:, NUMBERS.index("date")]
    unknown = date == MISSING
    eras = {
        "2019 and before": date < 2020,
        "2020 and 2021": (date >= 2020) & (date < 2022),
        "2022 and after": date >= 2022,
    }
    for name, rows in eras.items():
        yield v.figure(f"{PROTOCOL}, software of {name}", "full", unseen, rows & ~unknown)
    yield v.figure(f"{PROTOCOL}, software of unknown date", "full", unseen, unknown)


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
