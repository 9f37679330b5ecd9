"""Jobs to replay, before any policy has given them a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from ...estimate.prediction import Prediction
from ..replay import Floats, Ints, Pool
from ..similar.past_runs import PastRun

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
    lower bound. ``predictions`` are of the whole job and out of sample, None where there is none.
    ``past`` is what each had asked for and did, empty where that is not known of all.
    ``skipped`` counts the records that are not replayed, by reason.
    """

    pools: tuple[Pool, ...]
    submit_s: Floats
    gpus: Ints
    pool: Ints
    run_s: Floats
    asked_s: Floats
    censored: NDArray[np.bool_]
    predictions: tuple[Prediction | None, ...]
    bounds: LimitBounds
    skipped: Mapping[str, int]
    past: tuple[PastRun, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedJob:
    """One job of a log, times in seconds; ``limit_s`` None where its user stated none."""

    start_s: float
    gpus: int
    pool: str
    limit_s: float | None
    censored: bool
    past: PastRun
    prediction: Prediction | None = None


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
        asked_s=np.array(
            [np.nan if job.limit_s is None else job.limit_s for job in ordered], dtype=np.float64
        ),
        censored=np.array([job.censored for job in ordered], dtype=bool),
        predictions=tuple(job.prediction for job in ordered),
        bounds=bounds,
        skipped=+counts,
        past=tuple(job.past for job in ordered),
    )


def peak_gpus(jobs: Sequence[LoggedJob]) -> int:
    """The most GPUs that jobs held at one time; one that ends gives them back before one starts."""
    changes = [(job.start_s, 1, job.gpus) for job in jobs]
    changes += [(job.past.end_s, 0, -job.gpus) for job in jobs]
    held, most = 0, max((job.gpus for job in jobs), default=1)
    for _, _, gpus in sorted(changes):
        held += gpus
        most = max(most, held)
    return most
