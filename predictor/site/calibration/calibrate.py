"""One calibration: gather the runs of a site, fit, and check on those held back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import HistoryError
from ...estimate.core import Predictor
from ...estimate.fitting import Fitted, Progress, quiet
from ...estimate.residual.model import HyperparameterSets
from .gather import Gathered
from .guards import Caught, Guarded, Guards
from .held_back import Checked, Errors, Verdict, beyond, check, judge
from .refit import Base, fit_site
from .run_groups import RunGroups, run_groups
from .site_run import SiteRun

# The figure of a manifest that says when the last run ended that taught it, in Unix seconds.
UNTIL = "site runs until"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationComparison:
    """The same held-back runs before and after.

    ``fitted`` was taught by the earlier runs alone. ``beyond`` counts the runs cut off at their
    limit that took longer than its interval allows, ``left`` the runs that are no row by reason,
    ``caught`` the users whose reports are often impossible.
    """

    fitted: Fitted
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

    @property
    def better(self) -> bool:
        """True where the new one should replace the one in use."""
        return self.verdict.better

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
    guards: Guards | None = None,
    hyper: HyperparameterSets | None = None,
    progress: Progress = quiet,
) -> CalibrationComparison:
    """Fit to the earlier runs and check the later ones, by both predictors.

    Without ``guards`` every run is taken at its word. Raises HistoryError where no earlier run
    tells a step time.
    """
    earlier = _admitted(gathered.earlier, guards)
    later = _admitted(gathered.measured_later, guards)
    groups, left = run_groups(earlier.kept), gathered.left + earlier.left + later.left
    if not groups.groups:
        raise HistoryError(
            f"none of {gathered.runs} runs tells a step time: {reasons(left + groups.left)}"
        )
    fitted = fit_site(base, groups, hyper, progress)
    return CalibrationComparison(
        fitted=fitted,
        groups=groups,
        before=tuple(check(before, later.kept)),
        after=tuple(check(fitted.predictor, later.kept)),
        beyond=beyond(fitted.predictor, gathered.bounds),
        left=left + groups.left,
        caught=earlier.caught,
    )


def fit_all(
    base: Base,
    gathered: Gathered,
    *,
    guards: Guards | None = None,
    hyper: HyperparameterSets | None = None,
    progress: Progress = quiet,
) -> Fitted:
    """Fit to all runs, those that checked it too."""
    groups = run_groups(_admitted((*gathered.earlier, *gathered.later), guards).kept)
    return fit_site(base, groups, hyper, progress)


def reasons(left: Counter[str]) -> str:
    """Why runs are no rows, most frequent first."""
    return ", ".join(f"{number} {why}" for why, number in left.most_common())


def _admitted(candidates: Sequence[SiteRun], guards: Guards | None) -> Guarded:
    return Guarded(kept=tuple(candidates)) if guards is None else guards.admit(candidates)
