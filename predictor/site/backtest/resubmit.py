"""Replays a workload in which a job that a policy killed is submitted again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..replay import (
    NO_GATES,
    STOCK_RULES,
    After,
    Floats,
    Gates,
    Policy,
    Schedule,
    SlurmRules,
    Trace,
    in_pools,
    replay,
)
from .policies import Limits
from .workload import Workload

# The time of a second submission is that of the kill, which a first replay tells.
ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """When each job (n,) started and ended for good, and what its killed attempt ran in vain."""

    start_s: Floats
    end_s: Floats
    killed: NDArray[np.bool_]
    lost_s: Floats


def replay_limits(
    work: Workload,
    given: Limits,
    *,
    queue: Policy,
    depth: int,
    slurm: SlurmRules = STOCK_RULES,
) -> Attempts:
    """Every job under its limit; one that it kills comes again under the user's, from nothing.

    It comes at the end of the line at the time of its kill.
    """
    again = np.flatnonzero(_ended_early(work, given))
    n = len(work)
    again_submit_s = work.submit_s[again] + given.limit_s[again]
    both = np.concatenate([np.arange(n), again])
    run_s = in_pools(work.run_s[both], work.pool[both], len(work.pools))
    limit_s = np.concatenate([given.limit_s, given.again_s[again]])
    users = np.unique([run.request.user for run in work.past], return_inverse=True)[1]
    gates = NO_GATES
    if len(again):
        gates = Gates(after=tuple(After(job=n + k, other=int(j)) for k, j in enumerate(again)))
    for _ in range(ROUNDS if len(again) else 1):
        trace = Trace(
            submit_s=np.concatenate([work.submit_s, again_submit_s]),
            gpus=work.gpus[both],
            limit_s=limit_s,
            run_s=run_s,
            # Seconds, as order is written to slurmctld: of alike ones the first submitted.
            priority=None if given.key_s is None else -np.round(given.key_s).astype(np.int64),
            user=users[both] if len(users) == n else None,
        )
        out = replay(trace, work.pools, policy=queue, depth=depth, gates=gates, slurm=slurm)
        again_submit_s = out.end_s[again]
    return _attempts(out, again, n)


def _ended_early(work: Workload, given: Limits) -> NDArray[np.bool_]:
    """Jobs that their limit kills though the user's would let them run on."""
    early: NDArray[np.bool_] = (work.run_s > given.limit_s) & (given.again_s > given.limit_s)
    return early


def _attempts(out: Schedule, again: NDArray[np.intp], n: int) -> Attempts:
    start_s, end_s, killed = out.start_s[:n].copy(), out.end_s[:n].copy(), out.killed[:n].copy()
    lost_s = np.zeros(n)
    lost_s[again] = end_s[again] - start_s[again]
    start_s[again], end_s[again], killed[again] = out.start_s[n:], out.end_s[n:], out.killed[n:]
    return Attempts(start_s=start_s, end_s=end_s, killed=killed, lost_s=lost_s)
