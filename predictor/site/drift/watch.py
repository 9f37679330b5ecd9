"""All streams of a history: what each run took and had been said to, and the changes that stand.

The chart of a stream is two cumulative sums of rank scores.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from math import expm1, log, sqrt

import numpy as np

from profiles.gpus import known_name

from ...estimate.artifacts import VERSION
from ...job.training_job import SITE_PREFIX, TrainingJob
from ..calibration.run_reader import RunReader, StepEvidence, weighted_quantile, without_length
from ..history.run import Run

LEVEL = 0.95
# Earlier similar runs before a run counts: fewer tell little of where it should be.
MIN_EARLIER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStream:
    """Runs of a framework and GPU on a cluster; of one model, or of all where it is None."""

    cluster: str
    framework: str
    gpu: str
    model: str | None = None

    @property
    def where(self) -> str:
        """For people, after "on"."""
        cluster = f"{self.cluster}: " if self.cluster else ""
        model = f", {self.model}" if self.model else ""
        return f"{cluster}{self.gpu}, {self.framework}{model}"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A measured run: ``step_s`` seconds of a step, ended at ``end_s`` in Unix seconds.

    With ``lower_bound`` it hit its limit first, and the truth is longer. ``error`` is ln(measured
    / predicted) and ``inside`` whether it took no longer than its told 95 % quantile, None where
    nothing is known; ``version`` is the predictor that said it.
    """

    end_s: float
    user: str
    job: TrainingJob
    step_s: float
    lower_bound: bool = False
    error: float | None = None
    inside: bool | None = None
    version: str | None = None

    @property
    def streams(self) -> Iterator[RunStream]:
        """The streams it belongs to."""
        job = self.job
        cluster = job.source.removeprefix(SITE_PREFIX)
        for model in (None, job.model):
            yield RunStream(cluster=cluster, framework=job.framework, gpu=job.gpu, model=model)

    @cached_property
    def like(self) -> tuple[str, TrainingJob]:
        """What it has in common with runs that should take the same: user and configuration."""
        return self.user, without_length(self.job)


def observations(
    runs: Iterable[Run], candidates: RunReader, left: Counter[str]
) -> Iterator[Observation]:
    """One for every run that tells a step time; ``left`` counts the others by reason."""
    for run in runs:
        found = candidates.of(run)
        if isinstance(found, str):
            left[found] += 1
            continue
        bound = found.kind is StepEvidence.LOWER_BOUND
        error = inside = version = None
        said, of = run.predicted, found.job
        if (
            said is not None
            and said.step_s
            and not bound
            and (said.gpu is None or known_name(said.gpu) == of.gpu)  # of what it then ran on
            and said.gpus in (None, of.gpus)
        ):
            ratio, version = found.step_s / said.step_s, said.version
            error = log(ratio)
            if said.upper_s and said.median_s and said.level == LEVEL:
                inside = ratio <= said.upper_s / said.median_s
        yield Observation(
            end_s=run.ended.end_s,
            user=found.user,
            job=found.job,
            step_s=found.step_s,
            lower_bound=bound,
            error=error,
            inside=inside,
            version=version,
        )


class SequentialRanks:
    """Scores of mean 0 and variance 1, positive for slow."""

    def __init__(self) -> None:
        self._sorted: defaultdict[Hashable, list[float]] = defaultdict(list)

    def score(self, like: Hashable, value: float, *, lower_bound: bool = False) -> float | None:
        """The score of the next run, None where too few are like it.

        A lower bound counts where it is above the median of its like, and then as if it were the
        truth, which is on the safe side; one below says nothing and is forgotten.
        """
        seen = self._sorted[like]
        enough = len(seen) >= MIN_EARLIER
        if lower_bound and (not enough or value < seen[len(seen) // 2]):
            return None
        total = len(seen) + 1
        # The mid-rank, standardised as the uniform distribution on all ranks.
        rank = (bisect_left(seen, value) + bisect_right(seen, value)) / 2 + 1
        insort(seen, value)
        return (rank - (total + 1) / 2) / sqrt((total * total - 1) / 12) if enough else None


# A lasting shift of the mean score by twice this is found soonest: about one standard deviation of
# the runs of one configuration.
REFERENCE = 0.4
HALF_WIDTH = sqrt(3.0)  # of the uniform distribution with variance 1
STATES = 160
LIMITS = (1.5, 40.0)
TOLERANCE = 1e-3
YEAR_S = 365.25 * 86400
DEFAULT_FALSE_ALARMS = 1.0  # a year, on the whole site
LEAST_SPAN_S = 4 * 7 * 86400.0  # of a history, to tell from it how many runs a year brings


@lru_cache(maxsize=256)
def mean_runs_between_alarms(limit: float) -> float:
    """Runs between false alarms of the two charts of one stream at a limit.

    The sum as a Markov chain of STATES levels (Brook and Evans, Biometrika 59 (1972) 539), with
    scores uniform of variance 1. Ranks among few are less extreme, so they alarm less often.
    """
    width = 2 * limit / (2 * STATES - 1)
    levels = width * np.arange(STATES)
    edges = levels[None, :] + width / 2 + REFERENCE - levels[:, None]
    reached = np.clip((edges + HALF_WIDTH) / (2 * HALF_WIDTH), 0.0, 1.0)
    moves = np.diff(reached, axis=1, prepend=0.0)
    runs = np.linalg.solve(np.eye(STATES) - moves, np.ones(STATES))
    return float(runs[0]) / 2


def limit_for(false_alarms_per_year: float, scores_per_year: float) -> float:
    """The limit at which all charts together raise so many false alarms a year.

    ``scores_per_year`` counts a run once in every stream it belongs to.
    """
    limits = np.arange(*LIMITS, TOLERANCE).tolist()
    wanted = scores_per_year / false_alarms_per_year
    at = bisect_left(limits, wanted, hi=len(limits) - 1, key=mean_runs_between_alarms)
    return float(limits[at])


Values = defaultdict[Hashable, list[float]]
Pairs = list[tuple[float, float]]  # of the end of a run and its ln step time


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From ``since_s`` on runs take longer by the share ``shift`` (less where negative).

    Found at ``alarm_s`` (Unix seconds) after ``runs`` runs of ``users`` users in
    ``configurations`` configurations.
    """

    since_s: float
    alarm_s: float
    shift: float
    runs: int
    users: int
    configurations: int


class Chart:
    """Takes the runs of a stream oldest first; ``limit`` sets how rare false alarms are."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.scored = 0  # runs that were compared with earlier ones like them
        self._found: list[_Found] = []
        self._restart()

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was found, oldest first."""
        return tuple(found.change for found in self._found)

    def add(self, observed: Observation) -> bool:
        """Take one run; True where it raises an alarm, after which the chart starts again."""
        value = log(observed.step_s)
        if not observed.lower_bound:
            self._values[observed.like].append((observed.end_s, value))
            if self._found:
                self._found[-1].after[observed.like].append(value)
        score = self._ranks.score(observed.like, value, lower_bound=observed.lower_bound)
        if score is None:
            return False
        self.scored += 1
        for sign, held in self._held.items():
            self._sums[sign] = max(0.0, self._sums[sign] + sign * score - REFERENCE)
            held.append(observed)
            if not self._sums[sign]:
                held.clear()
            elif self._sums[sign] > self._limit:
                self._found.append(_Found(held, self._values))
                self._restart()
                return True
        return False

    def _restart(self) -> None:
        self._ranks = SequentialRanks()
        # Cumulative sums (Page, Biometrika 41 (1954) 100), 1 for slower and -1 for faster, and the
        # runs since each was 0.
        self._sums = {1: 0.0, -1: 0.0}
        self._held: dict[int, list[Observation]] = {1: [], -1: []}
        self._values: defaultdict[Hashable, Pairs] = defaultdict(list)


class _Found:
    """A change: ln step times before and after it, by configuration; later runs still come in."""

    def __init__(self, held: Sequence[Observation], values: Mapping[Hashable, Pairs]) -> None:
        self.held = tuple(held)
        self.before, self.after = Values(list), Values(list)
        for like, pairs in values.items():
            for end_s, value in pairs:
                side = self.after if end_s >= self.held[0].end_s else self.before
                side[like].append(value)

    @property
    def change(self) -> Change:
        """Its shift is the median over configurations of how far their medians moved.

        A configuration weighs as many as its fewer runs, before or after.
        """
        both = [(one, self.after[like]) for like, one in self.before.items() if self.after[like]]
        moved = [float(np.median(after) - np.median(before)) for before, after in both]
        weights = [float(min(len(after), len(before))) for before, after in both]
        return Change(
            since_s=self.held[0].end_s,
            alarm_s=self.held[-1].end_s,
            shift=expm1(weighted_quantile(moved, weights, 0.5) if both else 0.0),
            runs=len(self.held),
            users=len({one.user for one in self.held}),
            configurations=len({one.like[1] for one in self.held}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFigures:
    """Of ``runs`` predicted runs; None where nothing is known.

    ``bias`` is the median share by which they took longer than predicted, ``coverage`` the share
    at most at their told 95 % quantile, among the ``judged`` that were told one.
    """

    runs: int
    bias: float | None
    judged: int
    coverage: float | None

    @classmethod
    def of(cls, observed: Sequence[Observation]) -> DriftFigures:
        """Those of some runs."""
        errors = [o.error for o in observed if o.error is not None]
        inside = [o.inside for o in observed if o.inside is not None]
        return cls(
            runs=len(errors),
            bias=expm1(float(np.median(errors))) if errors else None,
            judged=len(inside),
            coverage=sum(inside) / len(inside) if inside else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedStream:
    """What is known of a stream; ``standing`` is the last change the predictor has not learned."""

    stream: RunStream
    measured: int
    scored: int
    figures: DriftFigures
    changes: tuple[Change, ...]
    standing: Change | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """All streams, those with most runs first, and what the alarms were set to.

    ``limit`` is that of every chart, for ``false_alarms_per_year`` of ``scores_per_year``.
    """

    streams: tuple[WatchedStream, ...]
    false_alarms_per_year: float
    scores_per_year: float
    limit: float
    left: Counter[str]

    @property
    def alarms(self) -> Iterator[WatchedStream]:
        """The streams whose change stands."""
        return (watched for watched in self.streams if watched.standing is not None)


def watch(
    observed: Iterable[Observation],
    left: Counter[str],
    *,
    false_alarms_per_year: float = DEFAULT_FALSE_ALARMS,
) -> Drift:
    """Watch runs that come oldest first."""
    runs = list(observed)
    ranks = SequentialRanks()
    scores = [ranks.score(o.like, o.step_s, lower_bound=o.lower_bound) for o in runs]
    scored = sum(score is not None for score in scores)
    span_s = max(LEAST_SPAN_S, runs[-1].end_s - runs[0].end_s) if runs else LEAST_SPAN_S
    per_year = 2 * scored * YEAR_S / span_s  # each run is in two streams
    limit = limit_for(false_alarms_per_year, per_year)
    members: defaultdict[RunStream, list[Observation]] = defaultdict(list)
    for one in runs:
        for stream in one.streams:
            members[stream].append(one)
    watched = [_watched(stream, those, limit) for stream, those in members.items()]
    watched.sort(key=lambda w: (w.stream.model is not None, -w.measured, w.stream.where))
    return Drift(
        streams=tuple(watched),
        false_alarms_per_year=false_alarms_per_year,
        scores_per_year=per_year,
        limit=limit,
        left=left,
    )


def _watched(stream: RunStream, observed: Sequence[Observation], limit: float) -> WatchedStream:
    chart = Chart(limit)
    for one in observed:
        chart.add(one)
    changes = chart.changes
    return WatchedStream(
        stream=stream,
        measured=len(observed),
        scored=chart.scored,
        figures=DriftFigures.of(observed),
        changes=changes,
        standing=changes[-1] if changes and not _learned(changes[-1], observed) else None,
    )


def _learned(change: Change, observed: Sequence[Observation]) -> bool:
    """True where the last prediction came from a predictor made after the alarm."""
    version = next((o.version for o in reversed(observed) if o.version is not None), None)
    if version is None or not VERSION.fullmatch(version):
        return False
    made = datetime.strptime(version[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    return made.timestamp() > change.alarm_s
