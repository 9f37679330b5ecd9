"""What keeps one user from moving the estimates of others by reports that are not true.

A report must agree with the scheduler's clock and with physics. In every group each user has the
same weight, however many runs: while fewer than half of its users lie, the median of the group lies
between honest values. A user who is alone in a group must not be further than MOST_ALONE from what
the users of the same stack and GPU measure. Who is caught often is left out whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from math import log
from typing import Any

import numpy as np

from profiles.storage import user_yaml

from ... import trusted_files as files
from ...errors import GraphError, JobError, RulesError
from ...estimate.core import Predictor, steps_of
from ...job.training_job import TrainingJob
from ...physics.step import StepModel
from ..history.run import JobState
from .run_reader import SiteRun, StepEvidence, without_length

FILE_NAME = "quarantine.yaml"
KINDS = ("user", "job", "cluster")


Quarantine = frozenset[tuple[str, str]]  # a kind and a name


def read_quarantine() -> Quarantine:
    """The users, jobs and clusters of the file, none where there is none.

    Raises RulesError for an entry that is invalid, ArtifactError where others can write it.
    """
    path = files.home() / FILE_NAME
    try:
        raw = user_yaml(files.trusted(path), RulesError)
    except FileNotFoundError:
        return Quarantine()
    if raw is not None and not isinstance(raw, list):
        raise RulesError(f"{path}: expected a list of entries")
    entries = enumerate(raw or [], 1)
    return Quarantine(_entry(f"{path}: entry {n}", entry) for n, entry in entries)


def _entry(where: str, raw: Any) -> tuple[str, str]:
    """What kind it names, and the name."""
    kinds = [kind for kind in KINDS if isinstance(raw, dict) and kind in raw]
    if len(kinds) != 1 or set(raw) - {*kinds, "reason"}:
        raise RulesError(f"{where}: expected one of {', '.join(KINDS)}, and a reason")
    value = raw[kinds[0]]
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value):
        raise RulesError(f"{where}: invalid {kinds[0]}={value!r}; expected a name")
    return kinds[0], str(value)


# Reported steps may take so much more than the elapsed time: medians are not means.
MOST_OF_ELAPSED = 1.1
# What no step accounts for may be this share of the elapsed time, or this long.
MOST_UNACCOUNTED, LEAST_UNACCOUNTED_S = 0.5, 600.0
MOST_STEPS = 1.05  # of those the job was to make
MOST_ALONE = 3.0
MIN_OTHERS = 3  # users of a stack and GPU that tell where it stands
# So many runs that cannot be true, and so large a share of a user's, leave all of them out.
CAUGHT_RUNS, CAUGHT_SHARE = 3, 0.2

NAMED = "in quarantine.yaml"
IMPOSSIBLE = "faster than the GPU can compute"
LONGER = "reports more step time than it ran"
UNACCOUNTED = "reports steps for less than half of its time"
TOO_MANY = "reports more steps than it was to make"
ALONE = f"alone in its group, and further than x {MOST_ALONE:g} from others of the stack"
CAUGHT = "of a user whose reports are often impossible"
LIES = (IMPOSSIBLE, LONGER, TOO_MANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A user whose runs are all left out: ``lies`` of ``runs`` could not be true."""

    user: str
    lies: int
    runs: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The candidates that may teach, with their weights; the others are counted by reason."""

    kept: tuple[SiteRun, ...]
    left: Counter[str] = field(default_factory=Counter)
    caught: tuple[Caught, ...] = ()


class Guards:
    """Judges candidates by a predictor that they did not teach."""

    def __init__(self, before: Predictor, quarantine: Quarantine) -> None:
        self._before = before
        self._floor = floor_by(before.steps)
        self._quarantine = quarantine

    def admit(self, candidates: Sequence[SiteRun]) -> Guarded:
        """Those that may teach, each user of a group with the same weight."""
        reasons = [self._refused(c) for c in candidates]
        caught = _caught(zip(candidates, reasons, strict=True))
        names = {c.user for c in caught}
        reasons = [
            CAUGHT if reason is None and c.user in names else reason
            for c, reason in zip(candidates, reasons, strict=True)
        ]
        passed = [c for c, why in zip(candidates, reasons, strict=True) if why is None]
        left = Counter(why for why in reasons if why is not None)
        kept = self._near_others(passed)
        if len(kept) < len(passed):
            left[ALONE] = len(passed) - len(kept)
        return Guarded(kept=tuple(balanced(kept)), left=left, caught=caught)

    def _refused(self, candidate: SiteRun) -> str | None:
        ended = candidate.run.ended
        names = zip(KINDS, (ended.user, ended.job_id, ended.cluster), strict=True)
        if self._quarantine.intersection(names):
            return NAMED
        floor_s = self._floor(without_length(candidate.job))
        if floor_s is not None and candidate.step_s < floor_s:
            return IMPOSSIBLE
        return disagreement(candidate)

    def _near_others(self, candidates: Sequence[SiteRun]) -> list[SiteRun]:
        """Without the runs of users alone in their group that are far from others of the stack."""
        users: defaultdict[TrainingJob, set[str]] = defaultdict(set)
        ratios: defaultdict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(dict)
        found = []
        for one in candidates:
            job = without_length(one.job)
            try:
                ratio = log(one.step_s / self._before.predict(job).step_s)
            except (GraphError, JobError):
                ratio = None
            users[job].add(one.user)
            if ratio is not None:
                ratios[job.source, job.framework, job.gpu].setdefault(one.user, []).append(ratio)
            found.append((one, job, ratio))
        middles = {
            stack: {user: float(np.median(values)) for user, values in by_user.items()}
            for stack, by_user in ratios.items()
        }
        return [
            one
            for one, job, ratio in found
            if ratio is None
            or len(users[job]) > 1
            or _near(ratio, one.user, middles[job.source, job.framework, job.gpu])
        ]


def disagreement(candidate: SiteRun) -> str | None:
    """How a report contradicts the scheduler's clock or its own job; None where it does not."""
    run, said = candidate.run, candidate.run.reported
    if candidate.kind is not StepEvidence.REPORTED or said is None or run.ended.start_s is None:
        return None
    elapsed_s = run.ended.end_s - run.ended.start_s
    stepping_s = said.steps * said.step_s
    if stepping_s > MOST_OF_ELAPSED * elapsed_s:
        return LONGER
    with suppress(JobError):
        steps = steps_of(candidate.job)
        if steps is not None and said.steps > MOST_STEPS * steps:
            return TOO_MANY
    rest_s = elapsed_s - stepping_s
    finished = run.ended.state is JobState.COMPLETED
    if finished and rest_s > max(MOST_UNACCOUNTED * elapsed_s, LEAST_UNACCOUNTED_S):
        return UNACCOUNTED
    return None


def balanced(candidates: Iterable[SiteRun]) -> list[SiteRun]:
    """The same with weights that add up to 1 for each user in each group."""
    found = list(candidates)
    groups = [(without_length(c.job), c.user) for c in found]
    runs = Counter(groups)
    return [replace(c, weight=1 / runs[group]) for c, group in zip(found, groups, strict=True)]


def floor_by(steps: StepModel) -> Callable[[TrainingJob], float | None]:
    """The least seconds a step can take: its arithmetic at the highest peak rate of the GPU.

    None for a job without a graph.
    """

    @cache
    def floor_s(job: TrainingJob) -> float | None:
        try:
            return steps.price(job).flops / max(job.hardware.peak_flops.values())
        except (GraphError, JobError):
            return None

    return floor_s


def _caught(judged: Iterable[tuple[SiteRun, str | None]]) -> tuple[Caught, ...]:
    runs: Counter[str] = Counter()
    lies: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for candidate, reason in judged:
        runs[candidate.user] += 1
        if reason in LIES:
            lies[candidate.user][reason] += 1
    return tuple(
        Caught(user=user, lies=why.total(), runs=runs[user], reason=why.most_common(1)[0][0])
        for user, why in sorted(lies.items())
        if why.total() >= max(CAUGHT_RUNS, CAUGHT_SHARE * runs[user])
    )


def _near(ratio: float, user: str, middles: dict[str, float]) -> bool:
    """True within MOST_ALONE of the median of the other users, or where they are too few."""
    others = [middle for name, middle in middles.items() if name != user]
    return len(others) < MIN_OTHERS or abs(ratio - float(np.median(others))) <= log(MOST_ALONE)
