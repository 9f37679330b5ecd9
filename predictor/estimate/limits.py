"""From a prediction to a time limit: the arithmetic both schedulers share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .assumptions import decisive
from .prediction import Prediction

if TYPE_CHECKING:
    from ..settings import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """How much of the interval a limit covers, and what a run needs besides its steps.

    The limit is the ``quantile`` of the time of all steps, ``checkpoint_share`` of it more, and
    ``startup_s``; rounded up to ``rounding_s``, at least ``floor_s``, at most ``cap_s``.
    """

    quantile: float
    startup_s: float = 0.0
    checkpoint_share: float = 0.0
    rounding_s: float = 60.0
    floor_s: float = 60.0
    cap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit in seconds that covers the slowest of its predictions.

    ``median_s`` and ``quantile_s`` are those of the steps alone, ``slowest`` the prediction they
    come from; ``capped`` says that the rule's cap cut the limit.
    """

    limit_s: float
    median_s: float
    quantile_s: float
    slowest: Prediction
    capped: bool


def time_limit(predictions: Sequence[Prediction], rule: LimitRule) -> Limit:
    """The limit of a job that may run as any of ``predictions``, each with a length."""
    slowest = max(predictions, key=lambda p: _steps_s(p, rule.quantile))
    quantile_s, median_s = _steps_s(slowest, rule.quantile), _steps_s(slowest, 0.5)
    wanted = rule.startup_s + quantile_s * (1 + rule.checkpoint_share)
    # A hair below the mark still counts as on it: 300.0000001 s are five minutes.
    rounded = math.ceil(wanted / rule.rounding_s - 1e-9) * rule.rounding_s
    limit_s = max(rounded, rule.floor_s)
    cap_s = math.inf if rule.cap_s is None else rule.cap_s
    return Limit(min(limit_s, cap_s), median_s, quantile_s, slowest, capped=limit_s > cap_s)


def too_thin(predictions: Iterable[Prediction], quantile: float, evidence: Evidence) -> str | None:
    """Why these predictions cannot carry a limit of a quantile, for people; None where they can."""
    for found in predictions:
        if (assumed := decisive(found.assumptions)) is not None:
            return f"{assumed.field} is not stated and may change the time more than 2 x"
        if found.tier.value in evidence.refused_tiers:
            return found.tier.meaning
        if wide := too_wide(found.quantile_s, quantile, evidence):
            return wide
    return None


def too_wide(
    quantile_s: Callable[[float], float], quantile: float, evidence: Evidence
) -> str | None:
    """Why times this wide cannot carry a limit of a quantile, for people; None where they can."""
    ratio, most = quantile_s(quantile) / quantile_s(0.5), evidence.max_interval_ratio
    told = f"the {quantile:.0%} quantile is {ratio:.1f} times the median, over {most:g}"
    return told if ratio > most else None


def _steps_s(found: Prediction, quantile: float) -> float:
    total = found.total_quantile_s(quantile)
    assert total is not None, "a limit needs a length"
    return total
