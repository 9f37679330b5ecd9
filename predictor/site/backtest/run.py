"""Replays a workload under every policy, here or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from joblib import Parallel, delayed, parallel_config

from ...errors import TraceError
from ..replay import BACKFILL_DEPTH, Policy
from .figures import CurvePoint, Figures, curve, figures_of
from .learned import LearnedTimes, learned_times
from .policies import LEARNING, PREDICTING, USERS, LimitPolicy, Limits, limits_of
from .resubmit import Attempts, replay_limits
from .workload import Workload

LOKY, DASK = "loky", "dask"
BACKENDS = (LOKY, DASK)
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Where the replays run: ``jobs`` processes here (-1 for one a core), or a Dask scheduler."""

    jobs: int = -1
    backend: str = LOKY
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if (self.backend == DASK) != (self.scheduler is not None):
            raise TraceError("backend dask needs the address of a scheduler, loky takes none")


@dataclass(frozen=True, slots=True)
class Replayed:
    """One policy: its limits, the schedule they led to, and its figures."""

    policy: LimitPolicy
    limits: Limits
    schedule: Attempts
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Every policy on one workload; ``curve`` is empty where nothing was predicted."""

    work: Workload
    replayed: tuple[Replayed, ...]
    curve: tuple[CurvePoint, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Policies under which jobs wait less because others are killed."""
        users = next((each.figures for each in self.replayed if each.policy.kind == USERS), None)
        return tuple(
            f"{each.policy.name} wins by killing: {each.figures.extra_kills} jobs end at its limits"
            " that their users' would let run; they run again"
            for each in self.replayed
            if users and each.figures.extra_kills and each.figures.wait_mean_s < users.wait_mean_s
        )


def backtest(
    work: Workload,
    policies: Sequence[LimitPolicy],
    *,
    queue: Policy = Policy.EASY,
    depth: int = BACKFILL_DEPTH,
    workers: Workers | None = None,
) -> Backtest:
    """Replay the jobs under each policy's limits.

    Raises TraceError where a policy predicts and no job has a prediction, and where the Dask
    scheduler cannot be reached.
    """
    predicts = any(found is not None for found in work.predictions)
    asking = [policy.name for policy in policies if policy.kind in PREDICTING]
    if asking and not predicts:
        raise TraceError(
            f"invalid policy={asking[0]!r}: no job says what it is, so none is predicted"
        )
    learned = _learned(work, policies)
    limits = [limits_of(work, policy, learned) for policy in policies]
    with _on(workers or Workers()) as parallel:
        schedules = parallel(
            delayed(replay_limits)(work, given, queue=queue, depth=depth) for given in limits
        )
    users = next(
        (out for policy, out in zip(policies, schedules, strict=True) if policy.kind == USERS), None
    )
    return Backtest(
        work=work,
        replayed=tuple(
            Replayed(policy, given, out, figures_of(work, policy, given, out, users))
            for policy, given, out in zip(policies, limits, schedules, strict=True)
        ),
        curve=tuple(curve(work)) if predicts else (),
    )


def _learned(work: Workload, policies: Sequence[LimitPolicy]) -> LearnedTimes | None:
    levels = [policy.quantile for policy in policies if policy.kind in LEARNING]
    return learned_times(work, [level for level in levels if level]) if levels else None


@contextmanager
def _on(workers: Workers) -> Iterator[Parallel]:
    if workers.backend == LOKY:
        yield Parallel(n_jobs=workers.jobs)
        return
    from distributed import Client

    try:
        client = Client(workers.scheduler, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise TraceError(
            f"scheduler={workers.scheduler!r} does not answer: "
            "expected the address of a Dask scheduler, such as tcp://HOST:8786"
        ) from error
    with client, parallel_config(backend=DASK, wait_for_workers_timeout=CONNECT_S):
        yield Parallel()
