"""The candidates of a history, split by time: those that teach and those that check."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from ...job.training_job import TrainingJob
from ..history.run import Run
from .fixed_times import FixedTimes
from .run_groups import without_length
from .run_reader import RunReader
from .site_run import SiteRun, StepEvidence

if TYPE_CHECKING:
    from ..history.store import History
    from ..history.where import Where

# Of one configuration the latest runs are kept, so that a history of any length fits in memory.
LATEST = 200


@dataclass(frozen=True, slots=True)
class Gathered:
    """``earlier`` candidates teach, ``later`` ones check; ``left`` are the other runs by reason.

    ``runs`` are all that were read.
    """

    earlier: tuple[SiteRun, ...]
    later: tuple[SiteRun, ...]
    left: Counter[str]
    runs: int

    @property
    def measured_later(self) -> tuple[SiteRun, ...]:
        """Those of the later ones that tell a step time and no lower bound."""
        return tuple(c for c in self.later if c.kind is not StepEvidence.LOWER_BOUND)

    @property
    def bounds(self) -> tuple[SiteRun, ...]:
        """Runs that hit their limit: each took longer than its ``step_s`` says."""
        both = (*self.earlier, *self.later)
        return tuple(c for c in both if c.kind is StepEvidence.LOWER_BOUND)


def gather(runs: Iterable[Run], fixed: Sequence[FixedTimes], cut_s: float) -> Gathered:
    """Candidates of ``runs``, which come oldest first; those that ended after ``cut_s`` check."""
    candidates = RunReader(fixed)
    earlier, later = _Latest(), _Latest()
    left: Counter[str] = Counter()
    count = 0
    for run in runs:
        count += 1
        found = candidates.of(run)
        if isinstance(found, str):
            left[found] += 1
        else:
            (later if run.ended.end_s > cut_s else earlier).add(found)
    passed = earlier.passed + later.passed
    if passed:
        left[f"one of more than {LATEST} similar runs"] = passed
    return Gathered(earlier.all(), later.all(), left, count)


class _Latest:
    """The latest candidates of each configuration; where it is full, of whoever has most."""

    def __init__(self) -> None:
        self._kept: defaultdict[TrainingJob, defaultdict[str, deque[SiteRun]]] = defaultdict(
            lambda: defaultdict(deque)
        )
        self.passed = 0

    def add(self, candidate: SiteRun) -> None:
        by_user = self._kept[without_length(candidate.job)]
        by_user[candidate.user].append(candidate)
        if sum(map(len, by_user.values())) > LATEST:
            max(by_user.values(), key=len).popleft()
            self.passed += 1

    def all(self) -> tuple[SiteRun, ...]:
        users = chain.from_iterable(by_user.values() for by_user in self._kept.values())
        return tuple(chain.from_iterable(users))


def cut_at(history: History, where: Where, hold_back: float, taught_s: float = 0.0) -> float:
    """When the runs that may teach had ended, in Unix seconds; at least ``taught_s``.

    Of the runs of a known model that ended after ``taught_s``, until when the predictor in use was
    taught, the latest ``hold_back`` are held back: neither predictor has seen them.
    """
    import polars as pl

    since_s = max(where.since_s or 0.0, taught_s)
    where = replace(where, since_s=since_s)
    ends = history.frame(where, ["end_s", "model"]).filter(pl.col("model").is_not_null())
    level = pl.col("end_s").quantile(1 - hold_back, interpolation="lower")
    found = ends.select(level).collect().item()
    return taught_s if found is None else float(found)
