"""The accuracy goal: shipped sources as sites, with few runs of their own."""

from __future__ import annotations

import numpy as np

from predictor.estimate.fitting import Fitted
from predictor.evaluation.protocols import site_figures


def test_every_number_of_runs_has_its_figure_and_runs_shown_are_not_scored(fitted: Fitted) -> None:
    figures = {f.protocol: f for f in site_figures(fitted)}
    assert [name for name in figures if "software of" not in name] == [
        "unseen source",
        "unseen source, models nobody else measured too",
        "unseen source + 1 run per stack and GPU",
        "unseen source + 1 run per stack and GPU, chosen",
        "unseen source + 3 runs per stack and GPU",
        "unseen source + 3 runs per stack and GPU, chosen",
        "unseen source + 1 run per model, stack and GPU",
        "unseen source + 3 runs per model, stack and GPU",
    ]
    none, one, three = (
        figures[f"unseen source{runs}"]
        for runs in ("", " + 1 run per stack and GPU", " + 3 runs per stack and GPU")
    )
    assert none.n > one.n > three.n > 0
    assert all(np.isfinite(f.mean) and f.median <= f.p90 for f in figures.values() if f.n)
    eras = [f for name, f in figures.items() if "software of" in name]
    assert sum(f.n for f in eras) == len(fitted.priced)
