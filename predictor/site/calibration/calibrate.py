"""One calibration: gather the runs of a site, fit, and check on runs that did not teach it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import expm1, log
from typing import TYPE_CHECKING

import numpy as np

from ...errors import GraphError, HistoryError, JobError
from ...estimate import fitting
from ...estimate.core import Predictor
from ...estimate.measurement import Unreadable, shipped
from ...estimate.residual.model import HyperparameterSets
from ...job.training_job import TrainingJob
from ...physics.step import StepModel
from ..history.run import Run
from . import run_reader
from .guards import Caught, Guards
from .run_reader import FixedTimes, RunGroups, RunReader, SiteRun, StepEvidence

if TYPE_CHECKING:
    from ..history.store import History
    from ..history.tables import Where


# Of one configuration the latest runs are kept, so that a history of any length fits in memory.
LATEST = 200


@dataclass(frozen=True, slots=True)
class Gathered:
    """``earlier`` candidates teach, ``later`` ones check; ``left`` are the other runs by reason.

    ``runs`` are all there are.
    """

    earlier: tuple[SiteRun, ...]
    later: tuple[SiteRun, ...]
    left: Counter[str]
    runs: int

    @property
    def bounds(self) -> tuple[SiteRun, ...]:
        """Runs that hit their limit: each took longer than its ``step_s`` says."""
        both = (*self.earlier, *self.later)
        return tuple(c for c in both if c.kind is StepEvidence.LOWER_BOUND)


def gather(
    runs: Iterable[Run], fixed: Sequence[FixedTimes], cut_s: float, total: int = 0
) -> Gathered:
    """Candidates of ``runs``, which come oldest first; those that ended after ``cut_s`` check.

    Of ``total`` runs the others were not worth reading.
    """
    reader = RunReader(fixed)
    # By whether they check and by configuration, then by user.
    kept: defaultdict[tuple[bool, TrainingJob], defaultdict[str, deque[SiteRun]]] = defaultdict(
        lambda: defaultdict(deque)
    )
    left: Counter[str] = Counter()
    count = 0
    for run in runs:
        count += 1
        found = reader.of(run)
        if isinstance(found, str):
            left[found] += 1
            continue
        by_user = kept[run.ended.end_s > cut_s, run_reader.without_length(found.job)]
        by_user[found.user].append(found)
        if sum(map(len, by_user.values())) > LATEST:
            max(by_user.values(), key=len).popleft()  # of whoever has most
            left[f"one of more than {LATEST} similar runs"] += 1
    if total > count:
        left["name no network, never ran, or ended early without a report"] = total - count
    sides: dict[bool, list[SiteRun]] = {False: [], True: []}
    for (checks, _), by_user in kept.items():
        sides[checks].extend(chain.from_iterable(by_user.values()))
    return Gathered(tuple(sides[False]), tuple(sides[True]), left, max(total, count))


def cut_at(history: History, where: Where, hold_back: float, taught_s: float = 0.0) -> float:
    """When the runs that may teach had ended, in Unix seconds; at least ``taught_s``.

    Of the runs that tell of their steps and ended after ``taught_s``, until when the predictor in
    use was taught, the latest ``hold_back`` are held back: neither predictor has seen them.
    """
    import polars as pl

    since_s = max(where.since_s or 0.0, taught_s)
    where = replace(where, since_s=since_s, only_telling=True)
    level = pl.col("end_s").quantile(1 - hold_back, interpolation="lower")
    found = history.frame(where, ["end_s"]).select(level).collect().item()
    return taught_s if found is None else float(found)


# A site's noise over that of a shipped measurement; few runs must not make it sure of itself.
NOISE_FACTORS = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class Base:
    """What every fit starts from: the priced measurements without the site's."""

    steps: StepModel
    priced: tuple[fitting.Priced, ...]
    unreadable: tuple[Unreadable, ...]

    @classmethod
    def of(cls, progress: fitting.Progress = fitting.quiet) -> Base:
        """Price the shipped measurements."""
        progress("pricing measurements", 0.05)
        steps = fitting.fit_steps()
        priced, unreadable = fitting.price(steps, shipped())
        return cls(steps, tuple(priced), tuple(unreadable))


def fit_site(
    base: Base,
    groups: RunGroups,
    hyper: HyperparameterSets | None = None,
    progress: fitting.Progress = fitting.quiet,
) -> fitting.Fitted:
    """Fit base and site together; nothing of the site that was measured elsewhere is repeated."""
    own, unreadable = fitting.price(base.steps, groups.measurements())
    sets = hyper or fitting.stored_hyperparameters()
    sources = sorted({p.measurement.source for p in own})
    return fitting.fit_priced(
        base.steps,
        (*base.priced, *own),
        (*base.unreadable, *unreadable),
        hyper=with_noise(sets, sources, groups.spread),
        progress=progress,
    )


def with_noise(
    sets: HyperparameterSets, sources: Sequence[str], spread: float | None
) -> HyperparameterSets:
    """The same, with the noise of a site's runs where its similar runs tell it (in ln)."""
    if spread is None:
        return sets
    found = []
    for hyper in (sets.known, sets.novel):
        factor = float(np.clip(spread / hyper.noise, *NOISE_FACTORS))
        noise = {**hyper.noise_by_source, **dict.fromkeys(sources, factor)}
        found.append(replace(hyper, noise_by_source=noise))
    return HyperparameterSets(*found)


MIN_RUNS, MIN_GROUPS = 10, 3
MARGIN = 0.02  # of the mean error before
SURE = 0.95  # of the improvement being above zero
LEAST_COVERAGE = 0.9  # of the 95 % interval, where the runs leave no doubt that it is less
DRAWS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``improvement`` is how much less |ln error| is on average, ``least`` its lower bound.

    ``runs`` were judged, in ``groups`` of one user and configuration. ``reason`` is for people.
    """

    better: bool
    reason: str
    runs: int
    groups: int
    improvement: float | None = None
    least: float | None = None

    def figures(self) -> dict[str, float]:
        """For the manifest of what is stored."""
        known = {"promotion improvement": self.improvement, "promotion lower bound": self.least}
        return {
            "promotion better": float(self.better),
            "promotion groups": float(self.groups),
            **{name: value for name, value in known.items() if value is not None},
        }


def judge(before: Sequence[Checked], after: Sequence[Checked]) -> Verdict:
    """Compare two predictors on the runs both predict; a new one that predicts fewer is worse."""
    old = {one.candidate.run.key: one for one in before}
    pairs = [(old[c.candidate.run.key], c) for c in after if c.candidate.run.key in old]
    gains: defaultdict[Hashable, list[float]] = defaultdict(list)
    for one, other in pairs:
        like = other.candidate.user, run_reader.without_length(other.candidate.job)
        gains[like].append(abs(one.error) - abs(other.error))
    counts = {"runs": len(pairs), "groups": len(gains)}
    if len(pairs) < MIN_RUNS or len(gains) < MIN_GROUPS:
        need = f"{MIN_RUNS} runs of {MIN_GROUPS} users or configurations"
        reason = f"too few held-back runs: {len(pairs)} of {len(gains)}, needed are {need}"
        return Verdict(better=False, reason=reason, **counts)
    means = np.array([np.mean(values) for values in gains.values()])
    draws = np.random.default_rng(0).choice(means, (DRAWS, len(means))).mean(axis=1)
    improvement, least = float(means.mean()), float(np.quantile(draws, 1 - SURE))
    against = _against(pairs, improvement, least, lost=len(old) - len(pairs))
    return Verdict(
        better=against is None,
        reason=against or f"error down by {improvement:.1%} on average, at least {least:.1%}",
        improvement=improvement,
        least=least,
        **counts,
    )


def _against(
    pairs: Sequence[tuple[Checked, Checked]], improvement: float, least: float, *, lost: int
) -> str | None:
    """What speaks against the new one, None for nothing."""
    if lost:
        return f"it cannot predict {lost} of the runs that the one in use can"
    margin = MARGIN * float(np.mean([abs(one.error) for one, _ in pairs]))
    if improvement < margin:
        return f"error down by {improvement:.1%}, less than the margin of {margin:.1%}"
    if least <= 0:
        return f"error down by {improvement:.1%}, which may be chance (bound {least:.1%})"
    from scipy.stats import binomtest  # takes a while

    was, became = (sum(pair[n].inside for pair in pairs) for n in (0, 1))
    highest = binomtest(became, len(pairs)).proportion_ci(method="wilson").high
    if became < was and highest < LEAST_COVERAGE:
        return f"its 95 % interval holds {became} of {len(pairs)} runs, that in use {was}"
    return None


LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Checked:
    """One run that was held back; ``error`` is ln(measured / predicted) of its step time."""

    candidate: SiteRun
    error: float
    inside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Error ratios of ``runs`` runs, and the share inside the 95 % interval."""

    runs: int
    mean: float
    median: float
    coverage: float

    @classmethod
    def of(cls, checked: Sequence[Checked]) -> Errors | None:
        """None where there are no runs."""
        if not checked:
            return None
        ratios = [abs(expm1(-c.error)) for c in checked]  # |predicted - measured| / measured
        return cls(
            runs=len(checked),
            mean=float(np.mean(ratios)),
            median=float(np.median(ratios)),
            coverage=float(np.mean([c.inside for c in checked])),
        )


def check(predictor: Predictor, candidates: Iterable[SiteRun]) -> list[Checked]:
    """Each run against its prediction; runs that cannot be predicted are left out."""
    checked = []
    for candidate in candidates:
        try:
            found = predictor.predict(candidate.job)
        except (GraphError, JobError):
            continue
        interval = found.interval(LEVEL)
        inside = interval.low_s <= candidate.step_s <= interval.high_s
        checked.append(Checked(candidate, log(candidate.step_s / found.step_s), inside))
    return checked


def by_stack(checked: Iterable[Checked]) -> dict[str, Errors]:
    """The errors by framework and GPU, which one calibration run speaks for."""
    groups: defaultdict[str, list[Checked]] = defaultdict(list)
    for one in checked:
        groups[f"{one.candidate.job.framework}, {one.candidate.job.gpu}"].append(one)
    found = {name: Errors.of(members) for name, members in sorted(groups.items())}
    return {name: errors for name, errors in found.items() if errors is not None}


# The figure of a manifest that says when the last run ended that taught it, in Unix seconds.
UNTIL = "site runs until"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationComparison:
    """The same held-back runs before and after.

    ``fitted`` was taught by the earlier runs alone. ``beyond`` counts the runs cut off at their
    limit that took longer than its interval allows, ``left`` the runs that are no row by reason,
    ``caught`` the users whose reports are often impossible.
    """

    fitted: fitting.Fitted
    groups: RunGroups
    before: tuple[Checked, ...]
    after: tuple[Checked, ...]
    beyond: int
    left: Counter[str]
    caught: tuple[Caught, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether the new predictor is better on the runs held back, and why."""
        return judge(self.before, self.after)

    def figures(self, taught: Sequence[SiteRun]) -> dict[str, float]:
        """For the manifest of what is stored, which ``taught`` taught."""
        figures = {
            UNTIL: max(c.run.ended.end_s for c in taught),
            "rows": float(len(self.fitted.priced)),
            "refused": float(len(self.fitted.unreadable)),
            "site rows": float(len(self.groups.groups)),
            "site runs": float(sum(group.runs for group in self.groups.groups)),
        }
        for name, checked in (("before", self.before), ("after", self.after)):
            errors = Errors.of(checked)
            if errors is not None:
                figures |= {
                    f"held-back mean error {name}": errors.mean,
                    f"held-back median error {name}": errors.median,
                    f"held-back 95 % coverage {name}": errors.coverage,
                    "held-back runs": float(errors.runs),
                }
        return figures | self.verdict.figures()


def compare(
    before: Predictor,
    base: Base,
    gathered: Gathered,
    *,
    guards: Guards,
    hyper: HyperparameterSets | None = None,
    progress: fitting.Progress = fitting.quiet,
) -> CalibrationComparison:
    """Fit to the earlier runs and check the later ones, by both predictors.

    Raises HistoryError where no earlier run tells a step time.
    """
    earlier = guards.admit(gathered.earlier)
    later = guards.admit([c for c in gathered.later if c.kind is not StepEvidence.LOWER_BOUND])
    groups, left = run_reader.run_groups(earlier.kept), gathered.left + earlier.left + later.left
    if not groups.groups:
        reasons = ", ".join(f"{n} {why}" for why, n in (left + groups.left).most_common())
        raise HistoryError(f"none of {gathered.runs} runs tells a step time: {reasons}")
    fitted = fit_site(base, groups, hyper, progress)
    cut_off = check(fitted.predictor, gathered.bounds)
    return CalibrationComparison(
        fitted=fitted,
        groups=groups,
        before=tuple(check(before, later.kept)),
        after=tuple(check(fitted.predictor, later.kept)),
        beyond=sum(one.error > 0 and not one.inside for one in cut_off),
        left=left + groups.left,
        caught=earlier.caught,
    )


def fit_all(
    base: Base, gathered: Gathered, guards: Guards, progress: fitting.Progress = fitting.quiet
) -> fitting.Fitted:
    """Fit to all runs, those that checked it too."""
    groups = run_reader.run_groups(guards.admit((*gathered.earlier, *gathered.later)).kept)
    return fit_site(base, groups, progress=progress)
