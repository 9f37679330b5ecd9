"""A predictor of the shipped measurements and of a site's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...estimate.fitting import (
    Fitted,
    Priced,
    Progress,
    fit_priced,
    fit_steps,
    price,
    price_parallel,
    quiet,
    stored_hyperparameters,
)
from ...estimate.measurement import Measurement, Unreadable, shipped
from ...estimate.residual.kernel import Hyperparameters
from ...estimate.residual.model import HyperparameterSets
from ...physics.step import StepModel
from .run_groups import RunGroups

# A site's noise over that of a shipped measurement; few runs must not make it sure of itself.
NOISE_FACTORS = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class Base:
    """What every fit starts from: the priced measurements without the site's."""

    steps: StepModel
    priced: tuple[Priced, ...]
    unreadable: tuple[Unreadable, ...]

    @classmethod
    def of(cls, rows: Sequence[Measurement] | None = None, progress: Progress = quiet) -> Base:
        """Price ``rows``, by default the shipped ones."""
        progress("pricing measurements", 0.05)
        steps = fit_steps()
        priced, unreadable = price_parallel(steps, shipped() if rows is None else rows)
        return cls(steps, tuple(priced), tuple(unreadable))


def fit_site(
    base: Base,
    groups: RunGroups,
    hyper: HyperparameterSets | None = None,
    progress: Progress = quiet,
) -> Fitted:
    """Fit base and site together; nothing of the site that was measured elsewhere is repeated."""
    own, unreadable = price(base.steps, groups.measurements())
    sets = hyper or stored_hyperparameters()
    sources = sorted({p.measurement.source for p in own})
    return fit_priced(
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
    return HyperparameterSets(
        _with_noise(sets.known, sources, spread), _with_noise(sets.novel, sources, spread)
    )


def _with_noise(hyper: Hyperparameters, sources: Sequence[str], spread: float) -> Hyperparameters:
    least, most = NOISE_FACTORS
    factor = min(max(spread / hyper.noise, least), most)
    noise = {**hyper.noise_by_source, **dict.fromkeys(sources, factor)}
    return replace(hyper, noise_by_source=noise)
