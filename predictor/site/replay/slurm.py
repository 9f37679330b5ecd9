"""What slurmctld does differently: whole nodes for planned jobs, passes at intervals, priorities.

As read in backfill.c and tried on 22.05. After an event the main scheduler starts jobs in the order
of priority, in each pool up to the first that does not fit. Every ``bf_interval`` backfill goes
through the queue: a job with room now starts, another is planned at the earliest time that limits
promise, and keeps the nodes it would take then, whole, from all jobs behind it for as long as its
limit says. A plan is forgotten with its pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ..history.cells import duration_s
from .nodes import Nodes, place
from .trace import Floats, Ints, Share

NO_WEIGHT_S = 1e9  # fair share where age weighs nothing: it goes before any waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRules:
    """The settings that matter; times in seconds, defaults those of Slurm.

    A job's priority is the seconds it has waited, at most ``max_age_s``, and up to
    ``fair_share_s`` for a user who has used nothing, half of that for one who has used as much as
    the others, by GPU seconds that count half after ``half_life_s``. A priority of the trace, as
    the site factor of the hook writes it, is in seconds of waiting too, and the time of submission
    is in it. Raises TraceError.
    """

    bf_interval_s: float = 30.0
    bf_window_s: float = 86_400.0
    max_age_s: float = inf
    fair_share_s: float = 0.0
    half_life_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        for name in ("bf_interval_s", "bf_window_s", "max_age_s", "half_life_s"):
            if not getattr(self, name) > 0:
                raise TraceError(f"invalid {name}={getattr(self, name):g}; expected more than 0")

    @property
    def fixed_order(self) -> bool:
        """Whether jobs keep their order while they wait."""
        return self.max_age_s == inf and not self.fair_share_s

    @classmethod
    def of_config(cls, text: str) -> SlurmRules:
        """Those of ``scontrol show config`` or a slurm.conf; raises TraceError."""
        pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
        config = {key.strip().lower(): value.split("#")[0].strip() for key, _, value in pairs}
        options = config.get("schedulerparameters", "").split(",")
        given = dict(option.split("=", 1) for option in options if "=" in option)
        found = {
            "bf_interval_s": _number(given, "bf_interval", 30.0),
            "bf_window_s": 60 * _number(given, "bf_window", 1440.0),
        }
        if config.get("prioritytype", "priority/basic") == "priority/multifactor":
            max_age_s = duration_s(config.get("prioritymaxage", ""), 60.0) or 7 * 86_400.0
            age = _number(config, "priorityweightage", 0.0)
            fair = _number(config, "priorityweightfairshare", 0.0)
            half_life_s = duration_s(config.get("prioritydecayhalflife", ""), 60.0)
            found |= {
                "max_age_s": max_age_s if age else inf,
                "fair_share_s": fair * max_age_s / age if age else NO_WEIGHT_S * bool(fair),
                "half_life_s": half_life_s or 7 * 86_400.0,
            }
        return cls(**found)


STOCK_RULES = SlurmRules()


def _number(config: Mapping[str, str], key: str, otherwise: float) -> float:
    text = config.get(key)
    if text is None:
        return otherwise
    try:
        return float(text)
    except ValueError:
        raise TraceError(f"invalid {key}={text!r}; expected a number") from None


class FairShare:
    """What users have used, and what that leaves them of fair share; users (n,) by job."""

    def __init__(self, rules: SlurmRules, users: Ints) -> None:
        self._rules, self._user = rules, users
        self._used, self._held = (np.zeros(int(users.max(initial=0)) + 1) for _ in range(2))
        self._at_s = -inf

    def holds(self, job: int, gpus: int, now_s: float) -> None:
        """A job takes GPUs, or gives them back where negative."""
        if self._rules.fair_share_s:
            self._until(now_s)
            self._held[self._user[job]] += gpus

    def seconds(self, jobs: Ints, now_s: float) -> Floats:
        """What fair share is worth to jobs (m,): 2 ** -(used / an equal share), in seconds."""
        self._until(now_s)
        share = self._used / max(float(self._used.mean()), 1e-9)
        worth: Floats = self._rules.fair_share_s * 0.5 ** share[self._user[jobs]]
        return worth

    def _until(self, now_s: float) -> None:
        gone_s = now_s - self._at_s if self._at_s > -inf else 0.0
        self._used = self._used * 0.5 ** (gone_s / self._rules.half_life_s) + self._held * gone_s
        self._at_s = now_s


class BackfillPlan:
    """One pass of backfill on one pool: GPUs free by limits, and nodes that planned jobs keep.

    ``_free`` (times, nodes) are the GPUs free from each of ``_times_s`` on, ``_kept`` the nodes
    that nobody else may use until the next of them.
    """

    def __init__(self, nodes: Nodes, now_s: float, window_s: float) -> None:
        self._size, self._until_s = nodes.size, now_s + window_s
        self._times_s, self._free = nodes.timeline(now_s)
        self._kept: NDArray[np.bool_] = np.zeros(self._free.shape, dtype=bool)
        self._kept_from_s = np.full(self._free.shape[1], inf)
        self._first: dict[tuple[int, float], float] = {}
        for one, lost in nodes.windows(now_s):
            self._keep(np.flatnonzero(lost), max(one.from_s, now_s), one.until_s)

    def may_start(self, gpus: Ints, limit_s: Floats) -> NDArray[np.bool_]:
        """Jobs (m,) that may have room now; never False where one has."""
        whole, rest = np.divmod(gpus, self._size)
        left = np.where(self._kept_from_s - self._times_s[0] >= limit_s[:, None], self._free[0], 0)
        found: NDArray[np.bool_] = (left.max(axis=1) >= rest) & (
            (left == self._size).sum(axis=1) >= whole
        )
        return found

    def earliest(self, gpus: int, limit_s: float) -> tuple[float, Share] | None:
        """When a job could start and where; None beyond the window."""
        known_s = self._first.get((gpus, limit_s), -inf)
        first = int(np.searchsorted(self._times_s, known_s))
        times_s = self._times_s[first : np.searchsorted(self._times_s, self._until_s, "right")]
        ends = np.searchsorted(self._times_s, times_s + limit_s)
        passed = np.vstack([np.zeros_like(self._free[:1]), np.cumsum(self._kept, axis=0)])
        taken = passed[ends] > passed[first : first + len(times_s)]
        usable = np.where(taken, 0, self._free[first : first + len(times_s)])
        whole, rest = divmod(gpus, self._size)
        fits = (usable == self._size).sum(axis=1) >= whole
        fits &= usable.max(axis=1, initial=0) >= rest
        for at in np.flatnonzero(fits).tolist():
            share = place(usable[at].tolist(), self._size, gpus)
            if share is not None:
                self._first[gpus, limit_s] = float(times_s[at])
                return float(times_s[at]), share
        self._first[gpus, limit_s] = inf
        return None

    def start(self, share: Share, limit_s: float) -> None:
        """A job starts now."""
        end = self._at(self._times_s[0] + limit_s)
        for node, count in share:
            self._free[:end, node] -= count

    def keep(self, share: Share, from_s: float, until_s: float) -> bool:
        """A job is planned: its nodes are kept whole. Whether fewer jobs may start now for it."""
        nodes = np.array([node for node, _ in share])
        self._keep(nodes, from_s, until_s)
        return bool(self._free[0, nodes].any())

    def free_until_s(self, share: Share) -> float:
        """When the first of these nodes is kept for another job."""
        return float(self._kept_from_s[[node for node, _ in share]].min())

    def _keep(self, nodes: NDArray[np.intp], from_s: float, until_s: float) -> None:
        begin, end = self._at(from_s), self._at(until_s)
        self._kept[begin:end, nodes] = True
        self._kept_from_s[nodes] = np.minimum(self._kept_from_s[nodes], from_s)

    def _at(self, moment_s: float) -> int:
        """The row of a time, which is made where there is none."""
        at = int(np.searchsorted(self._times_s, moment_s))
        if at == len(self._times_s) or self._times_s[at] != moment_s:
            times_s = self._times_s
            self._times_s = np.concatenate([times_s[:at], [moment_s], times_s[at:]])
            rows = np.arange(len(times_s) + 1)
            rows[at:] -= 1  # the new row begins as the one before it
            self._free, self._kept = self._free[rows], self._kept[rows]
        return at
