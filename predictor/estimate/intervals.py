"""Conformal intervals: quantiles of held-out errors in units of the predicted deviation.

Each novelty tier is calibrated on its own grouped cross-validation, so an interval for a model
nobody has measured is as wide as such predictions have been wrong (Vovk et al., Algorithmic
Learning in a Random World; Papadopoulos et al. 2002 for normalised scores).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .residual.kernel import Floats
from .residual.novelty import Tier

# A tier with fewer held-out scores is read from the scores of all tiers together: a two-sided
# 99 % interval needs this many.
MIN_SCORES = 199
# Scores kept per tier: every rank up to here, evenly thinned above.
MAX_SCORES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class QuantileFactors:
    """The factor on a predicted time for each quantile, of one tier and one deviation.

    ``scores`` are sorted, (n,).
    """

    scores: Floats
    deviation: float

    def __call__(self, level: float) -> float:
        """Of one ``level`` in (0, 1)."""
        return float(np.exp(self.deviation * score_at(self.scores, level)))


def score_at(scores: Floats, level: float) -> float:
    """Score below which a share ``level`` of future scores lies, conservatively rounded.

    Finite samples: rank ``level * (n + 1)``, from the outside in on either side.
    """
    rank = level * (len(scores) + 1)
    index = np.ceil(rank) if level > 0.5 else np.floor(rank) if level < 0.5 else round(rank)
    return float(scores[int(np.clip(index - 1, 0, len(scores) - 1))])


@dataclass(frozen=True, slots=True)
class Intervals:
    """Sorted signed scores (measured - predicted in ln, over deviation) of each tier."""

    scores: Mapping[Tier, Floats]

    def quantile(self, tier: Tier, level: float) -> float:
        """Score below which a share ``level`` of future scores of a tier lies."""
        return score_at(self.scores[tier], level)

    def factors(self, tier: Tier, deviation: float) -> QuantileFactors:
        """Factors on a predicted time of this tier and deviation."""
        return QuantileFactors(self.scores[tier], deviation)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Scores by tier name."""
        return {tier.value: scores for tier, scores in self.scores.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Intervals:
        """The inverse of ``to_arrays``."""
        return cls({Tier(name): values.astype(np.float64) for name, values in arrays.items()})


def calibrate(errors: Mapping[Tier, tuple[Floats, Floats]]) -> Intervals:
    """Intervals from (signed ln error, deviation) of held-out rows per tier."""
    raw = {}
    for tier, (error, deviation) in errors.items():
        usable = np.isfinite(error) & np.isfinite(deviation)
        raw[tier] = error[usable] / deviation[usable]
    pooled = np.concatenate(list(raw.values()))
    return Intervals(
        {tier: _thinned(own if len(own) >= MIN_SCORES else pooled) for tier, own in raw.items()}
    )


def _thinned(scores: Floats) -> Floats:
    ordered: Floats = np.sort(scores)
    if len(ordered) > MAX_SCORES:
        ordered = np.quantile(ordered, np.linspace(0, 1, MAX_SCORES))
    return ordered
