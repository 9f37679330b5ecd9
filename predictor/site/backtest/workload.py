"""The runs of a history or of an SWF file as jobs to replay, before any policy is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ..history.cells import UNLIMITED_S
from ..history.ingest import Item, Through
from ..history.run import Run
from ..history.swf import SwfFile
from ..replay import Floats, Ints, Pool
from ..similar.past_runs import PastRun, RunEnd

HOUR_S = 3600.0
# A job stands in line as if it had come so many times its estimate later, and at most a week: so
# nobody is overtaken by jobs that come more than a week after it.
ORDER_WEIGHT, ORDER_BOUND_S = 5.0, 7 * 24 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBounds:
    """What holds for every job: the limit of those whose users stated none, and the longest.

    In an order by estimates it stands back ``order_weight`` times its own, ``order_bound_s`` at
    most.
    """

    default_s: float = 24 * HOUR_S
    cap_s: float = UNLIMITED_S
    order_weight: float = ORDER_WEIGHT
    order_bound_s: float = ORDER_BOUND_S

    def __post_init__(self) -> None:
        if not 0 < self.default_s <= self.cap_s:
            raise TraceError(
                f"invalid default limit of {self.default_s:g} s; "
                f"expected more than 0, up to the longest limit of {self.cap_s:g} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJobs:
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


# Jobs whose GPU type is not known share one pool: partitions of a cluster share their nodes.
SHARED_POOL = "cluster"


def workload_of_runs(
    runs: Iterable[Item], *, pools: Sequence[Pool] = (), bounds: LimitBounds
) -> ReplayJobs:
    """Runs on the pool of their GPU type; where it is not known, on one for all.

    A single pool is for all jobs where no type is known of any; one not given is as large as it was
    ever used at once. The limit counts as the user's only where the user set it. Raises TraceError
    where no job is left to replay.
    """
    skipped: Counter[str] = Counter()
    shared = pools[0].name if len(pools) == 1 else SHARED_POOL
    jobs: list[tuple[str, PastRun]] = []
    for item in runs:
        found = _past(item) if isinstance(item, Run) else item
        if isinstance(found, PastRun):
            jobs.append((found.request.gpu_type or shared, found))
        elif not isinstance(found, Through):
            skipped[found if isinstance(found, str) else found.reason] += 1
    known = {pool.name: pool for pool in pools}
    for name in sorted({name for name, _ in jobs} - set(known)):
        known[name] = Pool(name=name, gpus=_peak_gpus([past for of, past in jobs if of == name]))
    fitting = [job for job in jobs if job[1].request.gpus <= known[job[0]].gpus]
    skipped["more GPUs than its pool has"] += len(jobs) - len(fitting)
    if not fitting:
        reasons = "; ".join(f"{n} x {why}" for why, n in skipped.items() if n) or "it is empty"
        raise TraceError(f"no job to replay: {reasons}")
    fitting.sort(key=lambda job: job[1].submit_s)
    past = tuple(one for _, one in fitting)
    index = {name: at for at, name in enumerate(known)}
    return ReplayJobs(
        pools=tuple(known.values()),
        submit_s=np.array([one.submit_s for one in past], dtype=np.float64),
        gpus=np.array([one.request.gpus for one in past], dtype=np.int64),
        pool=np.array([index[name] for name, _ in fitting], dtype=np.int64),
        run_s=np.array([one.run_s for one in past], dtype=np.float64),
        asked_s=np.array([one.request.limit_s or np.nan for one in past], dtype=np.float64),
        censored=np.array([one.ended is RunEnd.CUT_OFF for one in past], dtype=bool),
        bounds=bounds,
        skipped=+skipped,
        past=past,
    )


def workload_of_swf(
    file: SwfFile, *, pools: Sequence[Pool] = (), bounds: LimitBounds
) -> ReplayJobs:
    """The jobs of an SWF file on one pool, by default the machine of its header."""
    if len(pools) > 1:
        raise TraceError("an SWF file is replayed on one pool: give --pool once")
    if not pools and file.gpus is not None:
        pools = (Pool(name=SHARED_POOL, gpus=file.gpus),)
    return workload_of_runs(file.items, pools=pools, bounds=bounds)


def _peak_gpus(jobs: Sequence[PastRun]) -> int:
    """The most GPUs that jobs held at one time; one that ends gives them back before one starts."""
    changes = [(job.end_s - job.run_s, 1, job.request.gpus) for job in jobs]
    changes += [(job.end_s, 0, -job.request.gpus) for job in jobs]
    held = accumulate(gpus for _, _, gpus in sorted(changes))
    return max(*held, *(job.request.gpus for job in jobs))


def _past(run: Run) -> PastRun | str:
    """A run as it can be replayed, or why it cannot."""
    job = run.ended
    if job.start_s is None:
        return "never started"
    if job.gpus < 1:
        return "no GPUs"
    return PastRun.of(run) or "no run time, or times in the wrong order"
