"""What a site remembers of its runs, and the run times it expects of a job by them.

A job has a chain of similarities, from the runs of its script to those of the whole site. The
distribution of its run time mixes the runs of each: n runs of one similarity weigh n / (n + prior)
against all that is less telling (a chain of Dirichlet priors). So many similar runs speak alone,
and a new user gets what the site knows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from profiles.storage import shipped_yaml

from .past_runs import LogRatio, PastRun, RunEnd, ScaledRuns, hardware_of, rate_of, scaled_runs
from .request import ASSUMED, BY_SCRIPT, OF_MANY, JobRequest, Similarity
from .run_times import Floats, QuantileCoverage, RunTimes

# How many runs of each similarity weigh as much as all that is less telling.
PRIOR_RUNS = {
    Similarity[name.upper()]: float(runs)
    for name, runs in shipped_yaml("prior_runs.yaml", __file__).items()
}
# How far run times follow the limit among jobs that asked for different ones: their power.
LIMIT_POWER = {Similarity.USER: 0.5, Similarity.ACCOUNT: 0.5, Similarity.SITE: 1.0}
# Shares of their limit that jobs use where nothing is known, alike likely.
PRIOR_SHARES = (0.0005, 0.002, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
# Seconds where no limit is known either: a minute to two weeks.
PRIOR_S = (60.0, 300.0, 1200.0, 3600.0, 7200.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0, 1.2e6)
# So many of the latest runs take their place, a few of whose quantiles are kept.
PRIOR_LATEST, PRIOR_EVERY = 2000, 100
PRIOR_LEVELS = np.linspace(0.01, 0.99, 25)
LONG = -2  # the last but one of them, 95 %
# A scheduler ends a job some time after its limit: so many seconds, and this share; or as much
# later as this share of the latest that outlived theirs ended here.
GRACE_S, GRACE_SHARE = 60.0, 0.005
GRACE_LEVEL, GRACE_KEPT = 0.95, 200
MAX_WINDOWS = 200_000
RATIOS_KEPT, ERRORS_KEPT = 50, 200
LATEST_EXPECTED = 10_000
# Squared ln errors to begin with of runs alike and of physics, until jobs of this site tell.
FIRST_ERRORS = 5
FIRST_ERROR = {"runs": 0.5, "physics": 0.25}
# The share of physics where there is no similar run at all, but what is likely anywhere.
PHYSICS_ALONE = 0.98
WINDOW = 32
# Of jobs submitted together, and of one user among many, the latest; the rest says the same again.
PER_BATCH, PER_USER = 8, 4
HALF_LIFE_RUNS = 20.0
# m runs submitted together weigh m**0.6: they share their luck.
BATCH_POWER = 0.6

Naming = Callable[[JobRequest], JobRequest]
Parts = tuple[Floats, Floats, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class RunArrays:
    """Runs as arrays (n,): ln seconds, ln of the limit (NaN unknown), how it ended and weight."""

    ln_run: Floats
    ln_limit: Floats
    ended: NDArray[np.int64]
    weight: Floats


@dataclass(slots=True)
class RunWindow:
    """The latest runs of one key, oldest first; ``shared`` where they are of several users."""

    shared: bool
    runs: list[PastRun] = field(default_factory=list)
    seen: int = 0
    _arrays: RunArrays | None = None

    def add(self, run: PastRun) -> None:
        """Take the newest run in, and let go of the one that says least."""
        runs, self._arrays, self.seen = self.runs, None, self.seen + 1
        batch, user = run.batch, run.request.user
        if self.shared and user:
            alike, most = [o for o in runs if o.request.user == user], PER_USER
        else:
            alike, most = [o for o in runs if o.batch == batch], PER_BATCH
        if len(alike) >= most:
            runs.remove(alike[0])
        runs.append(run)
        if len(runs) > WINDOW:
            del runs[0]

    @property
    def arrays(self) -> RunArrays:
        """The runs as arrays, made once for all who ask before the next run ends."""
        runs = self.runs
        if self._arrays is None:
            size = Counter(run.batch for run in runs)
            shared = np.array([float(size[run.batch]) for run in runs]) ** (BATCH_POWER - 1)
            limits = (run.request.limit_s for run in runs)
            self._arrays = RunArrays(
                ln_run=np.array([log(run.run_s) for run in runs]),
                ln_limit=np.array([log(s) if s else np.nan for s in limits]),
                ended=np.array([int(run.ended) for run in runs]),
                weight=shared * 0.5 ** (np.arange(len(runs))[::-1] / HALF_LIFE_RUNS),
            )
        return self._arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarRuns:
    """Runs with one similarity to a job, and the share of the answer that is theirs.

    ``notes`` say how they were brought to the job, ``assumed`` whether that is a guess;
    ``longest_s`` is the longest of those that completed, so brought.
    """

    similarity: Similarity
    share: float
    runs: tuple[PastRun, ...]
    seen: int
    notes: tuple[str, ...] = ()
    assumed: bool = False
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recollection:
    """What is known of a job's run time, and by which runs, most telling first."""

    times: RunTimes
    similar: tuple[SimilarRuns, ...]
    physics_share: float = 0.0


def as_they_are(job: JobRequest) -> JobRequest:
    """The names of a job where the history keeps them clear."""
    return job


@dataclass(slots=True)
class HeldOutErrors:
    """Of jobs that physics and similar runs both spoke of: ln of run time over what each said."""

    physics: deque[float] = field(default_factory=lambda: deque(maxlen=ERRORS_KEPT))
    runs: deque[float] = field(default_factory=lambda: deque(maxlen=ERRORS_KEPT))

    @property
    def physics_share(self) -> float:
        """The share of an answer that is physics': the inverse of its squared error."""
        known, shift = FIRST_ERRORS * FIRST_ERROR["runs"], self.physics_shift
        runs = (known + sum(e**2 for e in self.runs)) / (len(self.runs) + FIRST_ERRORS)
        known = FIRST_ERRORS * FIRST_ERROR["physics"]
        errors = sum((e - shift) ** 2 for e in self.physics)
        physics = (known + errors) / (len(self.physics) + FIRST_ERRORS)
        return runs / (runs + physics)

    @property
    def physics_shift(self) -> float:
        """How much longer jobs run than physics says (start-up, pauses), in ln."""
        return median(self.physics) if self.physics else 0.0


class SitePrior:
    """What is likely of any job: a guess, whose place the latest runs of the site take."""

    def __init__(self, guess: Sequence[float]) -> None:
        self.ln: Floats = np.log(guess)  # values (n,) that are alike likely
        self._latest, self._new = deque(self.ln.tolist(), maxlen=PRIOR_LATEST), 0

    def add(self, ln: float) -> None:
        """Take a run in."""
        self._latest.append(ln)
        self._new += 1
        if self._new >= min(PRIOR_EVERY, len(self._latest) // 4):
            self.ln, self._new = np.quantile(self._latest, PRIOR_LEVELS), 0


class SiteMemory:
    """Windows of runs by similarity; taking a run in and recalling a job take constant time.

    ``naming`` gives the names of a job as the history that taught it kept them.
    """

    def __init__(self, naming: Naming = as_they_are) -> None:
        self.naming = naming
        self.coverage = QuantileCoverage()
        self.errors = HeldOutErrors()
        self._shares, self._seconds = SitePrior(PRIOR_SHARES), SitePrior(PRIOR_S)
        self._limits = SitePrior(())
        self._windows: OrderedDict[tuple[Similarity, str], RunWindow] = OrderedDict()
        self._ratios: dict[tuple[object, ...], deque[float]] = {}
        self._outlived_s: deque[float] = deque(maxlen=GRACE_KEPT)
        self._grace_s = GRACE_S

    @property
    def long_limit_s(self) -> float:
        """Seconds that one in twenty of the latest limits exceeds; without any, of run times."""
        return exp((self._limits if len(self._limits.ln) else self._seconds).ln[LONG])

    def learn(
        self, runs: Sequence[PastRun], expect: Callable[[int, PastRun], RunTimes] | None = None
    ) -> None:
        """Go through runs as time did: each is expected at its submission, and known at its end.

        ``expect`` says the times of a run by its place, in the place of ``recall``, which expects
        the latest LATEST_EXPECTED: how far the quantiles hold is told by fewer.
        """
        first = len(runs) - LATEST_EXPECTED
        moments = [(run.submit_s, 1, at) for at, run in enumerate(runs)]
        moments += [(run.end_s, 0, at) for at, run in enumerate(runs)]
        expected: dict[int, RunTimes] = {}
        for _, submitted, at in sorted(moments):
            run = runs[at]
            if not submitted:
                self.add(run, expected.pop(at, None))
            elif expect is not None:
                expected[at] = expect(at, run)
            elif at >= first:
                expected[at] = self.recall(run.request).times

    def add(self, run: PastRun, expected: RunTimes | None = None) -> None:
        """Remember a run that ended, and how it was expected at its submission."""
        if expected is not None:
            self.coverage.learn(expected.share_below(log(run.run_s)), run.batch)
            if run.predicted_s and run.ended is RunEnd.COMPLETED:
                self.errors.physics.append(log(run.run_s / run.predicted_s))
                self.errors.runs.append(log(run.run_s / expected.quantile_s(0.5)))
        limit_s = run.request.limit_s
        if run.request.gpus and limit_s:
            self._limits.add(log(limit_s))
        self._seconds.add(log(run.run_s))
        if limit_s:
            self._shares.add(min(log(run.run_s / limit_s), 0.0))
        if limit_s and run.run_s > limit_s:
            self._outlived_s.append(run.run_s - limit_s)
            self._grace_s = max(GRACE_S, float(np.quantile(self._outlived_s, GRACE_LEVEL)))
        for key in run.request.similarities():
            window = self._window(key)
            if key[0] in BY_SCRIPT:
                self._compare(window, run)
            window.add(run)
        while len(self._windows) > MAX_WINDOWS:
            self._windows.popitem(last=False)

    def add_running(self, job: JobRequest, submit_s: float, start_s: float, at_s: float) -> None:
        """Remember among those of its user that a job runs still; it is not seen at its end."""
        asked = job if job.hashed else self.naming(job).without_names()
        for key in (key for key in asked.similarities() if key[0] not in OF_MANY):
            self._window(key).add(PastRun.cut_off(asked, submit_s, start_s, at_s))

    def _window(self, key: tuple[Similarity, str]) -> RunWindow:
        """The runs of a key, the last to be forgotten from now on."""
        if key in self._windows:
            self._windows.move_to_end(key)
        else:
            self._windows[key] = RunWindow(shared=key[0] in OF_MANY)
        return self._windows[key]

    def runs(self) -> list[PastRun]:
        """Every run that is remembered, the one that ended last at the end."""
        unique = {id(run): run for window in self._windows.values() for run in window.runs}
        return sorted(unique.values(), key=lambda run: run.end_s)

    def seen(self) -> dict[tuple[Similarity, str], int]:
        """How many runs of each key there ever were."""
        return {key: window.seen for key, window in self._windows.items()}

    def count_seen(self, seen: Mapping[tuple[Similarity, str], int]) -> None:
        """Take over how many runs of each key there were, of which the latest are known."""
        for key in seen.keys() & self._windows.keys():
            self._windows[key].seen = seen[key]

    def recall(
        self,
        job: JobRequest,
        *,
        needed: bool = False,
        physics: LogRatio = lambda ran, job: None,
        predicted: Floats | None = None,
    ) -> Recollection:
        """The run times of a job, by the runs that have ended.

        They are how long it holds its GPUs; with ``needed`` how long it would take to complete, of
        which a failure tells a lower bound. ``physics`` brings runs of one script to other GPUs;
        ``predicted`` (n,) are ln seconds that physics holds for alike likely.
        """
        job = job if job.hashed else self.naming(job).without_names()
        ln_limit = log(job.limit_s) if job.limit_s else np.nan
        least = RunEnd.STOPPED if needed else RunEnd.CUT_OFF
        parts: list[Parts] = []
        similar: list[SimilarRuns] = []
        left, physics_share = 1.0, 0.0
        known = [
            (similarity, window)
            for similarity, key in job.sought()
            if (window := self._windows.get(key)) is not None
        ]
        if predicted is not None:
            physics_share = self.errors.physics_share if known else PHYSICS_ALONE
            left -= physics_share
            weight = np.full(len(predicted), (1 - left) / len(predicted))
            moved_ln_s = predicted + self.errors.physics_shift
            parts.append((moved_ln_s, weight, np.zeros(len(predicted), dtype=bool)))
        for similarity, window in known:
            moved = self._brought(similarity, window, job, physics)
            weight = window.arrays.weight[moved.row] * moved.share
            ended = window.arrays.ended[moved.row]
            total = float(weight.sum())
            if total <= 0.0:
                continue
            share = left * total / (total + PRIOR_RUNS[similarity])
            left -= share
            parts.append((moved.ln_s, weight * (share / total), ended >= least))
            completed = moved.ln_s[ended == RunEnd.COMPLETED]
            similar.append(
                SimilarRuns(
                    similarity=similarity,
                    share=share,
                    runs=tuple(window.runs),
                    seen=window.seen,
                    notes=moved.notes,
                    assumed=moved.assumed,
                    longest_s=float(np.exp(completed.max())) if len(completed) else 0.0,
                )
            )
        prior = self._shares.ln + ln_limit if job.limit_s else self._seconds.ln
        parts.append((prior, np.full(len(prior), left / len(prior)), np.zeros(len(prior), bool)))
        ln_s, weight, bounds = (np.concatenate(each) for each in zip(*parts, strict=True))
        cap = None if not job.limit_s else log(job.limit_s * (1 + GRACE_SHARE) + self._grace_s)
        return Recollection(RunTimes.of(ln_s, weight, bounds, cap), tuple(similar), physics_share)

    def _brought(
        self, similarity: Similarity, window: RunWindow, job: JobRequest, physics: LogRatio
    ) -> ScaledRuns:
        """The runs of a window as they would be of a job."""
        if similarity in (*BY_SCRIPT, *ASSUMED):
            return scaled_runs(window.runs, job, self._ratio, physics)
        runs, power = window.arrays, LIMIT_POWER.get(similarity, 0.0)
        ln_s, rows = runs.ln_run, np.arange(len(runs.ln_run))
        if power and job.limit_s:  # as they would be under another limit
            ln_s = ln_s + power * np.nan_to_num(log(job.limit_s) - runs.ln_limit)
        return ScaledRuns(ln_s, np.ones(len(rows)), rows, (), assumed=False)

    def forget(self, user: str) -> int:
        """Forget all runs of a user; how many they were."""
        gone = self.naming(JobRequest(user=user)).without_names().user
        before = self.runs()
        kept = [run for run in before if run.request.user != gone]
        seen, self._windows, self._ratios = self.seen(), OrderedDict(), {}
        self._shares, self._seconds = SitePrior(PRIOR_SHARES), SitePrior(PRIOR_S)
        self._limits = SitePrior(())
        for run in kept:
            self.add(run)
        self.count_seen(seen)
        return len(before) - len(kept)

    def _compare(self, window: RunWindow, run: PastRun) -> None:
        """Learn the ratio of two kinds of hardware from the latest runs of one script on both."""
        own = hardware_of(run.request)
        others = (o for o in reversed(window.runs) if hardware_of(o.request) != own)
        other = next(others, None)
        if other is None or other.ended is not RunEnd.COMPLETED is not run.ended:
            return
        one, two = rate_of(other, None), rate_of(run, None)
        if one is None or two is None or other.length is None or run.length is None:
            if run.length != other.length:
                return
            one, two = other.run_s, run.run_s
        elif other.length.unit != run.length.unit:
            return
        found = log(two / one)
        there = hardware_of(other.request)
        for key, value in (((there, own), found), ((own, there), -found)):
            self._ratios.setdefault(key, deque(maxlen=RATIOS_KEPT)).append(value)

    def _ratio(self, ran: JobRequest, job: JobRequest) -> float | None:
        found = self._ratios.get((hardware_of(ran), hardware_of(job)))
        return median(found) if found else None
