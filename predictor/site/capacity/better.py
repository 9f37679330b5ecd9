"""Changes that would have served one configuration better, and what each saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ...estimate.prediction import Prediction
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from .changes import elsewhere, in_mixed_precision, with_fewer_gpus
from .configurations import Configuration, Outlook, step_ratio
from .report_data import OpportunityKind, Range

# A change that saves less than this share of the GPU-hours (or the money) is not worth a mail.
LEAST_SAVING = 0.05
# Twice the GPUs should give at least this share of twice the speed.
LEAST_EFFICIENCY = 0.5
# A job may take this much longer on another type, with prices and without.
SLOWER_FOR_MONEY, SLOWER = 2.0, 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """One configuration under one change; ``ratio`` is of the time of a step."""

    kind: OpportunityKind
    of: Configuration
    to: Prediction
    ratio: Range

    @property
    def left(self) -> Range:
        """GPU-hours that the jobs would have taken, on whichever GPUs."""
        scale = self.of.hours * self.to.job.gpus / self.of.job.gpus
        return Range(
            low=scale * self.ratio.low,
            median=scale * self.ratio.median,
            high=scale * self.ratio.high,
        )

    @property
    def saved_hours(self) -> Range:
        """GPU-hours of the GPUs they ran on: all of them, where they would have run elsewhere."""
        if self.kind is OpportunityKind.OTHER_GPU:
            return Range(low=self.of.hours, median=self.of.hours, high=self.of.hours)
        return saved(self.of.hours, self.left, 1.0, 1.0)


def candidates(job: TrainingJob, gpu_types: Sequence[str], terms: Terms) -> Iterator[TrainingJob]:
    """What a job is compared with, to be predicted together."""
    mixed = in_mixed_precision(job)
    if mixed is not None:
        yield mixed
    yield from _elsewhere(job, gpu_types, terms)
    yield from islice(with_fewer_gpus(job), 1)  # what lies below is rarely asked for


def changes_of(
    one: Configuration, outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> Iterator[Better]:
    """Those that are worth it, at most one of a kind."""
    mixed = outlook(in_mixed_precision(one.job))
    if mixed is not None:
        yield from _worthwhile(OpportunityKind.MIXED_PRECISION, one, mixed)
    other = _other_gpu(one, outlook, gpu_types, terms)
    if other is not None:
        yield other
    fewer = _fewer(one, outlook)
    if fewer is not None:
        yield from _worthwhile(OpportunityKind.FEWER_GPUS, one, fewer)


def _worthwhile(kind: OpportunityKind, one: Configuration, to: Prediction) -> Iterator[Better]:
    found = Better(kind=kind, of=one, to=to, ratio=step_ratio(one.found, to))
    saved = found.saved_hours
    if saved.low > 0 and saved.median >= LEAST_SAVING * one.hours:
        yield found


def _fewer(one: Configuration, outlook: Outlook) -> Prediction | None:
    """The fewest GPUs reached by halving while the upper half is worth too little."""
    best, at = None, one.found
    for job in with_fewer_gpus(one.job):
        half = outlook(job)
        # Twice the GPUs are h.step_s / at.step_s times as fast: 2 is perfect, 1 is no gain.
        if half is None or half.step_s / at.step_s - 1 >= LEAST_EFFICIENCY:
            break
        best = at = half
    return best


def _other_gpu(
    one: Configuration, outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> Better | None:
    """The type that costs least; without prices a weaker one that is hardly slower."""
    prices = terms.tariff.per_gpu_hour
    found = []
    for job in _elsewhere(one.job, gpu_types, terms):
        to = outlook(job)
        if to is None:
            continue
        ratio = step_ratio(one.found, to)
        each = Better(kind=OpportunityKind.OTHER_GPU, of=one, to=to, ratio=ratio)
        old, new = prices.get(one.job.gpu), prices.get(job.gpu)
        if prices:
            if old is None or new is None or ratio.high > SLOWER_FOR_MONEY:
                continue
            gain = 1 - ratio.high * new / old
        else:
            gain = 1 - _strength(job) / _strength(one.job) if ratio.high <= SLOWER else 0.0
        if gain > LEAST_SAVING:
            found.append((gain, each))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _elsewhere(job: TrainingJob, gpu_types: Sequence[str], terms: Terms) -> Iterator[TrainingJob]:
    """Types to try: without prices only weaker ones."""
    for other in elsewhere(job, gpu_types):
        if terms.tariff.per_gpu_hour or _strength(other) < _strength(job):
            yield other


def _strength(job: TrainingJob) -> float:
    return max(job.hardware.peak_flops.values())


def saved(hours: float, left: Range, old: float, new: float) -> Range:
    """What hours at ``old`` each cost more than what would be left of them at ``new`` each."""
    had = hours * old
    return Range(
        low=had - left.high * new, median=had - left.median * new, high=had - left.low * new
    )
