"""What is replayed: jobs, pools and what jobs wait for; and what comes out: a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import TraceError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# (node, GPUs of it) of one job.
Share = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPUs that are alike to the scheduler.

    With ``gpus_per_node`` a job of at most that many GPUs runs within one node, and a larger one
    takes whole nodes and the rest of its GPUs on one more. Without it any free GPUs will do.
    """

    name: str
    gpus: int
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        per_node = self.gpus if self.gpus_per_node is None else self.gpus_per_node
        if self.gpus < 1 or per_node < 1 or self.gpus % per_node:
            raise TraceError(
                f"invalid pool {self.name!r} of {self.gpus} GPUs with {per_node} in a node; "
                "expected at least 1 GPU, in whole nodes"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Jobs as arrays of n rows.

    ``submit_s`` (n,) in seconds of any origin, ``gpus`` (n,), ``limit_s`` (n,) after which a job
    is killed. ``run_s`` (n, pools) is how long the job would run in each pool if nothing stopped
    it, NaN where it may not run there. ``priority`` (n,): higher first, then by submission;
    None where all are equal. ``runs`` (n,) are the jobs that run already when they come: GPUs that
    are to go away are no reason for them to wait; None where there are none. ``user`` (n,) are
    numbers from 0, for fair share. ``least_s`` (n,) is Slurm's TimeMin: backfill plans a job by it
    and may start it with any limit from that on, NaN where it is not given. Raises TraceError,
    naming the field and the first job it is wrong in.
    """

    submit_s: Floats
    gpus: Ints
    limit_s: Floats
    run_s: Floats
    priority: Ints | None = None
    runs: NDArray[np.bool_] | None = None
    user: Ints | None = None
    least_s: Floats | None = None

    def __post_init__(self) -> None:
        n = len(self.submit_s)
        shapes = {"gpus": self.gpus.shape, "limit_s": self.limit_s.shape}
        for name in ("priority", "runs", "user", "least_s"):
            if getattr(self, name) is not None:
                shapes[name] = getattr(self, name).shape
        for name, shape in shapes.items():
            if shape != (n,):
                raise TraceError(f"{name} has the shape {shape}: expected ({n},)")
        if self.run_s.ndim != 2 or len(self.run_s) != n:
            raise TraceError(f"run_s has the shape {self.run_s.shape}: expected ({n}, pools)")
        _check("submit_s", self.submit_s, np.isfinite(self.submit_s), "a finite time")
        _check("gpus", self.gpus, self.gpus >= 1, "at least 1")
        positive = np.isfinite(self.limit_s) & (self.limit_s > 0)
        _check("limit_s", self.limit_s, positive, "a finite time above 0")
        with np.errstate(invalid="ignore"):
            unsound = np.isinf(self.run_s) | (self.run_s < 0)
        sound = np.array(~unsound.any(axis=1))
        _check("run_s", self.run_s, sound, "finite times of 0 or more, or NaN")

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """``job`` may start ``delay_s`` after ``other`` has ended, or ``started``; rows of a trace."""

    job: int
    other: int
    started: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Rows of a trace of which ``at_most`` run at once, as tasks of an array."""

    jobs: tuple[int, ...]
    at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The conditions of a trace; of those in ``any_of`` one is enough, of others all have to hold.

    Jobs that wait for each other never start.
    """

    after: tuple[After, ...] = ()
    any_of: frozenset[int] = frozenset()
    throttles: tuple[Throttle, ...] = ()


NO_GATES = Gates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When and where each job of a trace ran, arrays (n,) in the trace's order.

    ``pool`` is the index of the pool. ``killed`` are the jobs that ended at their limit unfinished.
    ``promised_s`` is the first reservation that a job got at the head of the queue, NaN where it
    never needed one. ``shares`` are its GPUs by the nodes of its pool.
    """

    start_s: Floats
    end_s: Floats
    killed: NDArray[np.bool_]
    pool: Ints
    promised_s: Floats
    shares: list[Share]


def in_pools(run_s: ArrayLike, pool: ArrayLike, pools: int) -> Floats:
    """The ``run_s`` (n, pools) of jobs that may run in one pool each, from (n,) and its index."""
    at = np.asarray(pool, dtype=np.int64)
    table = np.full((len(at), pools), np.nan)
    table[np.arange(len(at)), at] = run_s
    return table


def _check(name: str, values: NDArray[np.generic], good: NDArray[np.bool_], accepted: str) -> None:
    if not good.all():
        job = int(np.argmin(good))
        raise TraceError(f"invalid {name}={values[job]} of job {job}; {accepted}")
