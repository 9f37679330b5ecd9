"""Replays a workload under every policy, here or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from joblib import Parallel, delayed, parallel_config

from ...errors import TraceError
from ..replay import BACKFILL_DEPTH, Policy, Schedule, Trace, in_pools, replay
from .figures import CurvePoint, Figures, curve, figures_of
from .policies import PREDICTING, LimitPolicy, Limits, limits_of
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
    schedule: Schedule
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Every policy on one workload; ``curve`` is empty where nothing was predicted."""

    work: Workload
    replayed: tuple[Replayed, ...]
    curve: tuple[CurvePoint, ...]


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
            f"policy={asking[0]!r} is not possible: no job says what it is, so none is predicted"
        )
    limits = [limits_of(work, policy) for policy in policies]
    with _on(workers or Workers()) as parallel:
        schedules = parallel(
            delayed(replay)(_trace(work, given), work.pools, policy=queue, depth=depth)
            for given in limits
        )
    return Backtest(
        work=work,
        replayed=tuple(
            Replayed(policy, given, out, figures_of(work, policy, given, out))
            for policy, given, out in zip(policies, limits, schedules, strict=True)
        ),
        curve=tuple(curve(work)) if predicts else (),
    )


def _trace(work: Workload, limits: Limits) -> Trace:
    return Trace(
        submit_s=work.submit_s,
        gpus=work.gpus,
        limit_s=limits.limit_s,
        run_s=in_pools(work.run_s, work.pool, len(work.pools)),
    )


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
            "the address of a Dask scheduler is accepted, such as tcp://HOST:8786"
        ) from error
    with client, parallel_config(backend=DASK, wait_for_workers_timeout=CONNECT_S):
        yield Parallel()
