"""Policies: the limit of each job of a workload, and the order of the queue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ..replay import Floats
from ..similar.estimate import PhysicsView, estimate_job
from ..similar.memory import SiteMemory
from ..similar.past_runs import PastRun
from ..similar.run_times import RunTimes
from .workload import ReplayJobs

USERS, DEFAULT, ORACLE, ORDER_USERS = "users", "default", "oracle", "order-users"
HISTORY, ORDER = "history", "order"
POLICIES = (USERS, "history@0.95", "order@0.5", ORDER_USERS, ORACLE)
ACCEPTED = (
    "users, default, oracle, order-users, and with a quantile Q between 0 and 1 history@Q, order@Q"
)
# No limit is shorter: a job of no length still needs one.
LEAST_S = 1.0
_QUANTILE = re.compile(rf"({HISTORY}|{ORDER})@(0\.\d+)")


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """A way of giving limits or of ordering; ``quantile`` only of those that learn."""

    kind: str
    quantile: float | None = None

    @property
    def name(self) -> str:
        """As it is written: ``users``, ``order@0.5``."""
        return self.kind if self.quantile is None else f"{self.kind}@{self.quantile:g}"

    @classmethod
    def parse(cls, text: str) -> LimitPolicy:
        """One policy; raises TraceError naming what is accepted."""
        word = text.strip()
        if word in (USERS, DEFAULT, ORACLE, ORDER_USERS):
            return cls(word)
        match = _QUANTILE.fullmatch(word)
        if match is None or not 0 < float(match[2]) < 1:
            raise TraceError(f"invalid policy={word!r}; expected {ACCEPTED}")
        return cls(match[1], float(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits (n,) in seconds, and which of them follow from similar runs.

    ``again_s`` is the limit under which a job that was killed is submitted again, NaN where it is
    not: the user's, where that was longer. ``key_s`` orders the queue, None for submission.
    """

    limit_s: Floats
    predicted: NDArray[np.bool_]
    again_s: Floats
    key_s: Floats | None = None


def policies_of(texts: Sequence[str]) -> tuple[LimitPolicy, ...]:
    """The policies in their order, each once; raises TraceError."""
    found = dict.fromkeys(LimitPolicy.parse(text) for text in texts)
    if not found:
        raise TraceError(f"no policy; expected {ACCEPTED}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LearnedTimes:
    """Times (n,) in seconds by quantile: what the queue is ordered by, and run times."""

    order_s: Mapping[float, Floats]
    quantile_s: Mapping[float, Floats]


def learned_times(
    work: ReplayJobs, levels: Sequence[float], physics: PhysicsView | None = None
) -> LearnedTimes:
    """Go through the log as time did: each job is estimated from the runs that had ended.

    Times are those of the log, so that every policy gets the same estimates. Raises TraceError
    where the workload holds no requests.
    """
    if len(work.past) != len(work):
        raise TraceError(
            "no job says who asked for what; expected jobs of a history or an SWF file"
        )
    order_s, quantile_s = ({level: np.empty(len(work)) for level in levels} for _ in range(2))
    memory = SiteMemory()

    def expected(at: int, run: PastRun) -> RunTimes:
        found = estimate_job(run.request, memory, physics)
        for level in levels:
            order_s[level][at] = found.order_s(level)
            quantile_s[level][at] = found.quantile_s(level)
        return found.times

    memory.learn(work.past, expected)
    return LearnedTimes(order_s, quantile_s)


def limits_of(work: ReplayJobs, policy: LimitPolicy, learned: LearnedTimes | None = None) -> Limits:
    """What each job gets, never longer than the longest limit there is.

    ``users`` is what users stated; where that is not known a job is planned by the default, and
    never killed. ``default`` is the default for everybody, as if nobody had stated a limit,
    ``oracle`` the run time itself. ``history`` is the quantile that similar runs give (and physics,
    where a job names its network), where it is below the user's limit. ``order`` and
    ``order-users`` leave limits alone.
    """
    # What users stated; an unknown limit is the default, and long enough for the job.
    unknown, bounds = np.isnan(work.asked_s), work.bounds
    enough = np.maximum(bounds.default_s, work.run_s + work.censored)
    cap_s = np.where(unknown, np.maximum(bounds.cap_s, enough), bounds.cap_s)
    users = np.where(unknown, enough, work.asked_s).clip(LEAST_S, cap_s)
    none = np.zeros(len(work), dtype=bool)
    if policy.kind == ORDER_USERS:
        return _unkilled(users, none, _key(work, users))
    if policy.kind == USERS:
        return _unkilled(users, none)
    if policy.kind == ORACLE:
        # A job that was killed would have run on: a second more than it is known to have run.
        return _unkilled((work.run_s + work.censored).clip(min=LEAST_S), none)
    if policy.kind == DEFAULT:
        limit_s, predicted = np.full(len(work), bounds.default_s), none
    else:
        assert policy.quantile is not None, "policies that learn have a quantile"
        assert learned is not None, "they come with what was learned"
        if policy.kind == ORDER:
            return _unkilled(users, ~none, _key(work, learned.order_s[policy.quantile]))
        limit_s = np.minimum(learned.quantile_s[policy.quantile].clip(LEAST_S), users)
        predicted = limit_s < users
    again_s = np.where(users > limit_s, users, np.nan)
    return Limits(limit_s=limit_s, predicted=predicted, again_s=again_s)


def _unkilled(limit_s: Floats, predicted: NDArray[np.bool_], key_s: Floats | None = None) -> Limits:
    again_s = np.full(len(limit_s), np.nan)
    return Limits(limit_s=limit_s, predicted=predicted, again_s=again_s, key_s=key_s)


def _key(work: ReplayJobs, estimate_s: Floats) -> Floats:
    bounds = work.bounds
    return work.submit_s + np.minimum(bounds.order_weight * estimate_s, bounds.order_bound_s)
