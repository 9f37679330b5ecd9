"""Conformal intervals: quantiles of held-out errors in units of the predicted deviation.

Each novelty tier is calibrated on its own grouped cross-validation, so an interval for a model
nobody has measured is as wide as such predictions have been wrong (Vovk et al., Algorithmic
Learning in a Random World; Papadopoulos et al. 2002 for normalised scores). Scores may be weighted
(Tibshirani et al. 2019), so that each source counts alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .residual.kernel import Floats

# What has fewer held-out scores is read from the scores of all together: a two-sided 99 % interval
# needs this many.
MIN_SCORES = 199
# Scores kept per tier: every rank up to here, evenly thinned above.
MAX_SCORES = 2000


def factor(scores: Floats, deviation: float, level: float) -> float:
    """The factor on a predicted time of a quantile, from sorted scores (n,) and the deviation."""
    return float(np.exp(deviation * score_at(scores, level)))


def score_at(scores: Floats, level: float) -> float:
    """Score below which a share ``level`` of future scores lies, conservatively rounded.

    Finite samples: rank ``level * (n + 1)``, from the outside in on either side.
    """
    rank = level * (len(scores) + 1)
    index = ceil(rank) if level > 0.5 else floor(rank) if level < 0.5 else round(rank)
    return float(scores[min(max(index - 1, 0), len(scores) - 1)])


@dataclass(frozen=True, slots=True)
class Intervals:
    """Sorted signed scores (measured - predicted in ln, over deviation) of each tier."""

    scores: Mapping[str, Floats]

    def quantile(self, tier: str, level: float) -> float:
        """Score below which a share ``level`` of future scores of a tier lies."""
        return score_at(self.scores[tier], level)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Scores by the name of their tier."""
        return {str(tier): scores for tier, scores in self.scores.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Intervals:
        """The inverse of ``to_arrays``."""
        return cls(dict(arrays))


def calibrate(
    errors: Mapping[str, tuple[Floats, Floats]], weights: Mapping[str, Floats] | None = None
) -> Intervals:
    """Intervals from (signed ln error, deviation) of held-out rows per tier.

    ``weights`` are those of the rows of a tier, 1 each where it has none.
    """
    scores, shares = {}, {}
    for tier, (error, deviation) in errors.items():
        usable = np.isfinite(error) & np.isfinite(deviation)
        scores[tier] = error[usable] / deviation[usable]
        shares[tier] = weights[tier][usable] if weights and tier in weights else None
    pooled = _ordered(np.concatenate(list(scores.values())), None)
    enough = {tier for tier, own in scores.items() if len(own) >= MIN_SCORES}
    return Intervals(
        {t: _ordered(own, shares[t]) if t in enough else pooled for t, own in scores.items()}
    )


def _ordered(scores: Floats, weights: Floats | None) -> Floats:
    """The scores, or MAX_SCORES quantiles of them where they are more or are weighted."""
    order = np.argsort(scores)
    ordered: Floats = scores[order]
    if weights is not None:
        above = np.cumsum(weights[order])
        middles = (above - weights[order] / 2) / above[-1]
        return np.interp(np.linspace(0, 1, MAX_SCORES), middles, ordered)
    if len(ordered) > MAX_SCORES:
        ordered = np.quantile(ordered, np.linspace(0, 1, MAX_SCORES))
    return ordered
