"""The runs of a history or of an SWF file as jobs to replay, before any policy is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ..history.ingest import Item, Through
from ..history.run import Run
from ..history.swf import SwfFile
from ..replay import Floats, Ints, Pool
from ..similar.past_runs import PastRun, RunEnd

HOUR_S = 3600.0
# The longest limit there is where no other is said: slurmctld's backfill plans a year.
UNLIMITED_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBounds:
    """What holds for every job: the limit of those whose users stated none, and the longest."""

    default_s: float = 24 * HOUR_S
    cap_s: float = UNLIMITED_S

    def __post_init__(self) -> None:
        if not 0 < self.default_s <= self.cap_s:
            raise TraceError(
                f"invalid default limit of {self.default_s:g} s; "
                f"expected more than 0, up to the longest limit of {self.cap_s:g} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs as arrays (n,) in order of submission, and the pools they ran in.

    ``asked_s`` is the user's limit, NaN where none was stated. ``run_s`` is the true run time; of
    the ``censored`` jobs, which were killed at their limit, it is what they had run by then: a
    lower bound. ``past`` is what each had asked for and did, empty where that is not known of all.
    ``skipped`` counts the records that are not replayed, by reason.
    """

    pools: tuple[Pool, ...]
    submit_s: Floats
    gpus: Ints
    pool: Ints
    run_s: Floats
    asked_s: Floats
    censored: NDArray[np.bool_]
    bounds: LimitBounds
    skipped: Mapping[str, int]
    past: tuple[PastRun, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedJob:
    """One job of a log: what it asked for and did, and in which pool."""

    past: PastRun
    pool: str

    @property
    def gpus(self) -> int:
        """GPUs it held."""
        return self.past.request.gpus


def workload_of(
    jobs: Sequence[LoggedJob],
    *,
    pools: Sequence[Pool] = (),
    bounds: LimitBounds,
    skipped: Mapping[str, int],
) -> Workload:
    """The jobs of a log on ``pools``; one not given is as large as it was ever used at once.

    Raises TraceError where no job is left to replay.
    """
    known = {pool.name: pool for pool in pools}
    for name in sorted({job.pool for job in jobs} - set(known)):
        known[name] = Pool(name=name, gpus=peak_gpus([job for job in jobs if job.pool == name]))
    fitting = [job for job in jobs if job.gpus <= known[job.pool].gpus]
    counts = Counter(skipped)
    counts["more GPUs than its pool has"] += len(jobs) - len(fitting)
    if not fitting:
        reasons = "; ".join(f"{n} x {why}" for why, n in counts.items() if n) or "it is empty"
        raise TraceError(f"no job to replay: {reasons}")
    ordered = sorted(fitting, key=lambda job: job.past.submit_s)
    index = {name: at for at, name in enumerate(known)}
    return Workload(
        pools=tuple(known.values()),
        submit_s=np.array([job.past.submit_s for job in ordered], dtype=np.float64),
        gpus=np.array([job.gpus for job in ordered], dtype=np.int64),
        pool=np.array([index[job.pool] for job in ordered], dtype=np.int64),
        run_s=np.array([job.past.run_s for job in ordered], dtype=np.float64),
        asked_s=np.array([job.past.request.limit_s or np.nan for job in ordered], dtype=np.float64),
        censored=np.array([job.past.ended is RunEnd.CUT_OFF for job in ordered], dtype=bool),
        bounds=bounds,
        skipped=+counts,
        past=tuple(job.past for job in ordered),
    )


def peak_gpus(jobs: Sequence[LoggedJob]) -> int:
    """The most GPUs that jobs held at one time; one that ends gives them back before one starts."""
    changes = [(job.past.end_s - job.past.run_s, 1, job.gpus) for job in jobs]
    changes += [(job.past.end_s, 0, -job.gpus) for job in jobs]
    held, most = 0, max((job.gpus for job in jobs), default=1)
    for _, _, gpus in sorted(changes):
        held += gpus
        most = max(most, held)
    return most


# Jobs whose GPU type is not known share one pool: partitions of a cluster share their nodes.
SHARED_POOL = "cluster"


def workload_of_runs(
    runs: Iterable[Item],
    *,
    pools: Sequence[Pool] = (),
    bounds: LimitBounds,
) -> Workload:
    """Runs on the pool of their GPU type; where it is not known, on one for all.

    A single pool is for all jobs where no type is known of any. The limit counts as the user's only
    where the user set it.
    """
    skipped: Counter[str] = Counter()
    jobs = []
    shared = pools[0].name if len(pools) == 1 else SHARED_POOL
    for run in runs:
        found = _logged(run, shared) if isinstance(run, Run) else run
        if isinstance(found, LoggedJob):
            jobs.append(found)
        elif not isinstance(found, Through):
            skipped[found if isinstance(found, str) else found.reason] += 1
    return workload_of(jobs, pools=pools, bounds=bounds, skipped=skipped)


def workload_of_swf(file: SwfFile, *, pools: Sequence[Pool] = (), bounds: LimitBounds) -> Workload:
    """The jobs of an SWF file on one pool, by default the machine of its header."""
    if len(pools) > 1:
        raise TraceError("an SWF file is replayed on one pool: give --pool once")
    if not pools and file.gpus is not None:
        pools = (Pool(name=SHARED_POOL, gpus=file.gpus),)
    return workload_of_runs(file.items, pools=pools, bounds=bounds)


def _logged(run: Run, shared: str) -> LoggedJob | str:
    job = run.ended
    if job.start_s is None:
        return "never started"
    if job.gpus < 1:
        return "no GPUs"
    if not job.submit_s <= job.start_s <= job.end_s:
        return "submitted, started and ended in the wrong order"
    past = PastRun.of(run)
    if past is None:
        return "no run time"
    return LoggedJob(past=past, pool=job.gpu_type or shared)
