"""Changes that would have served one configuration better, and what each saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from ...errors import PrecisionTimeError
from ...estimate.prediction import Prediction
from ...job.precision import Precision
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from ...planning.plans import fitting_job
from .configurations import Configuration, Outlook, step_ratio
from .report_data import OpportunityKind, Range

FULL_PRECISION = (Precision.FP32, Precision.TF32)
# Options that name the precision a second time.
_PRECISION_OPTIONS = ("amp", "tf32")


def in_mixed_precision(job: TrainingJob) -> TrainingJob | None:
    """The job in bf16 mixed precision, fp16 where the GPU has no bf16; None where nothing gains."""
    peaks = job.hardware.peak_flops
    if job.precision not in FULL_PRECISION or "fp16_tensor" not in peaks:
        return None
    bf16 = "bf16_tensor" in peaks
    precision = Precision.MIXED_BF16_FP32 if bf16 else Precision.MIXED_FP16_FP32
    options = tuple(pair for pair in job.options if pair[0] not in _PRECISION_OPTIONS)
    return _possible(lambda: job.but(precision=precision, options=options))


def on(gpu_type: str, job: TrainingJob) -> TrainingJob | None:
    """The same job, batch and number of GPUs on another type; None where it does not fit."""
    return _possible(lambda: job.but(gpu=gpu_type))


def with_fewer_gpus(job: TrainingJob) -> Iterator[TrainingJob]:
    """The same steps, of the same global batch, on half the GPUs, a quarter ... as far as fits."""
    gpus = job.gpus
    while gpus % 2 == 0 and (gpus // 2) % job.split == 0:
        gpus //= 2
        smaller = _possible(lambda gpus=gpus: _on_gpus(job, gpus))  # type: ignore[misc]
        if smaller is None:
            return
        yield smaller


def _on_gpus(job: TrainingJob, gpus: int) -> TrainingJob:
    return job.but(
        gpus=gpus,
        gpus_per_node=min(gpus, job.gpus_per_node),
        batch_size=None,
        global_batch_size=job.step_samples,
        grad_accum=job.micro_steps,
    )


def _possible(make: Callable[[], TrainingJob]) -> TrainingJob | None:
    try:
        return _fitting(make())
    except PrecisionTimeError:
        return None


@lru_cache(maxsize=8192)
def _fitting(job: TrainingJob) -> TrainingJob | None:
    """The job as it fits; cached, for candidates are listed once to price and once to compare."""
    try:
        return fitting_job(job)
    except PrecisionTimeError:
        return None


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
        return self.ratio.times(self.of.hours * self.to.job.gpus / self.of.job.gpus)

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
    """The job on each other type that it fits; without prices only on weaker ones."""
    for name in gpu_types:
        other = on(name, job)
        if other is None or other.gpu == job.gpu:
            continue
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
