"""Policies of time limits: what each job of a workload would have been given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ...estimate.limits import EvidenceRule, LimitRule, time_limit, too_thin
from ...estimate.prediction import Prediction
from ...estimate.residual.novelty import Tier
from ..replay import Floats
from .workload import Workload

USERS, DEFAULT, ORACLE, OURS, FILL = "users", "default", "oracle", "ours", "fill"
PREDICTING = (OURS, FILL)
POLICIES = ("users", "default", "fill@0.95", "ours@0.9", "ours@0.95", "ours@0.99", "oracle")
ACCEPTED = "users, default, oracle, and ours@Q or fill@Q with a quantile Q between 0 and 1"
# How the Slurm hook makes a limit unless it is configured otherwise; docs/slurm.md.
STARTUP_S, CHECKPOINT_SHARE, ROUNDING_S, FLOOR_S = 600.0, 0.02, 300.0, 600.0
MAX_INTERVAL_RATIO, REFUSED = 4.0, frozenset({Tier.MODEL})
# No limit is shorter: a job of no length still needs one.
LEAST_S = 1.0
_QUANTILE = re.compile(rf"({OURS}|{FILL})@(0\.\d+)")


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """A way of giving limits; ``quantile`` only of those that predict."""

    kind: str
    quantile: float | None = None

    @property
    def name(self) -> str:
        """As it is written: ``users``, ``ours@0.95``."""
        return self.kind if self.quantile is None else f"{self.kind}@{self.quantile:g}"

    @classmethod
    def parse(cls, text: str) -> LimitPolicy:
        """One policy; raises TraceError naming what is accepted."""
        word = text.strip()
        if word in (USERS, DEFAULT, ORACLE):
            return cls(word)
        match = _QUANTILE.fullmatch(word)
        if match is None or not 0 < float(match[2]) < 1:
            raise TraceError(f"policy={word!r} is not possible: accepted are {ACCEPTED}")
        return cls(match[1], float(match[2]))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits (n,) in seconds, and which of them follow from a prediction."""

    limit_s: Floats
    predicted: NDArray[np.bool_]


def policies_of(texts: Sequence[str]) -> tuple[LimitPolicy, ...]:
    """The policies in their order, each once; raises TraceError."""
    found = dict.fromkeys(LimitPolicy.parse(text) for text in texts)
    if not found:
        raise TraceError(f"no policy: accepted are {ACCEPTED}")
    return tuple(found)


def limits_of(work: Workload, policy: LimitPolicy) -> Limits:
    """What each job gets, never longer than the longest limit there is.

    ``users`` is what users stated, else the default; ``default`` is the default for everybody, as
    if nobody had stated a limit; ``oracle`` is the run time itself. ``ours`` is predicted wherever
    a prediction is good enough to act on, also in place of a shorter or longer limit of the user;
    ``fill`` only where the user stated none, as the Slurm hook does. Elsewhere both are ``users``.
    """
    none = np.zeros(len(work), dtype=bool)
    cap_s, default_s = work.bounds.cap_s, work.bounds.default_s
    users = np.where(np.isnan(work.asked_s), default_s, work.asked_s).clip(LEAST_S, cap_s)
    if policy.kind == USERS:
        return Limits(users, none)
    if policy.kind == DEFAULT:
        return Limits(np.full(len(work), default_s), none)
    if policy.kind == ORACLE:
        # A job that was killed would have run on: a second more than it is known to have run.
        return Limits((work.run_s + work.censored).clip(min=LEAST_S), none)
    assert policy.quantile is not None, "policies that predict have a quantile"
    ours = predicted_limits(work, policy.quantile)
    used = ~np.isnan(ours) & (np.isnan(work.asked_s) if policy.kind == FILL else True)
    return Limits(np.where(used, ours, users), used)


def predicted_limits(work: Workload, quantile: float) -> Floats:
    """The limits (n,) that predictions give; NaN where there is none or it is too thin."""
    rule = LimitRule(
        quantile=quantile,
        startup_s=STARTUP_S,
        checkpoint_share=CHECKPOINT_SHARE,
        rounding_s=ROUNDING_S,
        floor_s=FLOOR_S,
        cap_s=work.bounds.cap_s,
    )
    evidence = EvidenceRule(
        quantile=quantile, max_interval_ratio=MAX_INTERVAL_RATIO, refused_tiers=REFUSED
    )
    return np.array([_limit_s(found, rule, evidence) for found in work.predictions])


def _limit_s(found: Prediction | None, rule: LimitRule, evidence: EvidenceRule) -> float:
    if found is None or too_thin([found], evidence) is not None:
        return float("nan")
    return time_limit([found], rule).limit_s
