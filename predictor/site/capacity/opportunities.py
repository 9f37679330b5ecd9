"""Like jobs that one change would have served better, with what rests on what.

Hours are the measured ones of the period, times one less the predicted ratio of times. A change is
listed only where even the cautious end of its 95 % interval saves. Opportunities are each counted
alone: two of the same job do not add up. A change is one of the script's own flags: what is said
beside the script (a comment, an annotation) changes nothing of what it computes.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from typing import Any

from profiles.storage import shipped_yaml

from ...errors import PrecisionTimeError
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text, value_text
from ...job.precision import Precision
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from ...planning.plans import fitting_job
from .configurations import Configuration, Outlook, gpu_watts, step_ratio
from .report_data import Opportunity, OpportunityKind, Range, total

FULL_PRECISION = (Precision.FP32, Precision.TF32)
# Options that name the precision a second time.
_PRECISION_OPTIONS = ("amp", "tf32")
# Rows of one kind, the largest first.
MOST_ROWS = 50
PROGRAM = "precision-time"
# What a check says of a job in a way of its own, and what it leaves out: what changes no step.
_APART = {
    *("precision", "gpu", "gpus", "gpus_per_node", "batch_size", "global_batch_size", "grad_accum"),
    *("steps", "epochs", "dataset_size", "sequence_parallel", "source"),
}
_DEFAULTS = {one.name: one.default for one in fields(TrainingJob)}
_FP16_ALONE = " (no flag for bf16 is known: this is fp16)"
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
    def saved_hours(self) -> Range:
        """GPU-hours of the GPUs they ran on: all of them, where they would have run elsewhere."""
        if self.kind is OpportunityKind.OTHER_GPU:
            return Range(low=self.of.hours, median=self.of.hours, high=self.of.hours)
        return self.saved(1.0, 1.0)

    def saved(self, old: float, new: float) -> Range:
        """What their hours at ``old`` each cost more than what is left of them at ``new`` each."""
        had = self.of.hours * old
        left = self.ratio.times(self.of.hours * self.to.job.gpus / self.of.job.gpus)
        return Range(
            low=had - left.high * new, median=had - left.median * new, high=had - left.low * new
        )


def better(
    found: Sequence[Configuration], outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> list[Opportunity]:
    """Every opportunity, at most MOST_ROWS of each kind.

    The largest come first, by money where it is known, else by GPU-hours.
    """
    outlook.of(job for one in found for job in _candidates(one.job, gpu_types, terms))
    groups: dict[tuple[str, ...], list[Better]] = defaultdict(list)
    for one in found:
        for each in _changes_of(one, outlook, gpu_types, terms):
            groups[each.kind, one.job.model, *_setting(one.job), *_setting(each.to.job)] += [each]
    rows = sorted((_row(group, terms) for group in groups.values()), key=_size, reverse=True)
    of_kind = [[row for row in rows if row.kind is kind][:MOST_ROWS] for kind in OpportunityKind]
    return sorted((row for same in of_kind for row in same), key=_size, reverse=True)


def _setting(job: TrainingJob) -> tuple[str, ...]:
    return job.precision.value, job.gpu, str(job.gpus)


def _size(row: Opportunity) -> tuple[float, float]:
    cost = 0.0 if row.saved_cost is None else row.saved_cost.median
    return cost, row.saved_gpu_hours.median


def in_mixed_precision(job: TrainingJob) -> TrainingJob | None:
    """The job in bf16 mixed precision, fp16 where the GPU has no bf16; None where nothing gains."""
    peaks = job.hardware.peak_flops
    if job.precision not in FULL_PRECISION or "fp16_tensor" not in peaks:
        return None
    bf16 = "bf16_tensor" in peaks
    precision = Precision.MIXED_BF16_FP32 if bf16 else Precision.MIXED_FP16_FP32
    options = tuple(pair for pair in job.options if pair[0] not in _PRECISION_OPTIONS)
    return _possible(job, precision=precision, options=options)


def on(gpu_type: str, job: TrainingJob) -> TrainingJob | None:
    """The same job, batch and number of GPUs on another type; None where it does not fit."""
    return _possible(job, gpu=gpu_type)


def with_fewer_gpus(job: TrainingJob) -> Iterator[TrainingJob]:
    """The same steps, of the same global batch, on half the GPUs, a quarter ... as far as fits."""
    gpus = job.gpus
    while gpus % 2 == 0 and (gpus // 2) % job.split == 0:
        gpus //= 2
        smaller = _possible(
            job,
            gpus=gpus,
            gpus_per_node=min(gpus, job.gpus_per_node),
            batch_size=None,
            global_batch_size=job.step_samples,
            grad_accum=job.micro_steps,
        )
        if smaller is None:
            return
        yield smaller


@lru_cache(maxsize=8192)
def _possible(job: TrainingJob, **changes: Any) -> TrainingJob | None:
    """The changed job as it fits; cached: candidates are listed to price and again to compare."""
    try:
        return fitting_job(job.but(**changes))
    except PrecisionTimeError:
        return None


def _candidates(job: TrainingJob, gpu_types: Sequence[str], terms: Terms) -> Iterator[TrainingJob]:
    """What a job is compared with, to be predicted together."""
    mixed = in_mixed_precision(job)
    if mixed is not None:
        yield mixed
    yield from _elsewhere(job, gpu_types, terms)
    yield from islice(with_fewer_gpus(job), 1)  # what lies below is rarely asked for


def _changes_of(
    one: Configuration, outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> Iterator[Better]:
    """Those that are worth it, at most one of a kind."""
    other = _other_gpu(one, outlook, gpu_types, terms)
    if other is not None:
        yield other
    for kind, to in (
        (OpportunityKind.MIXED_PRECISION, outlook(in_mixed_precision(one.job))),
        (OpportunityKind.FEWER_GPUS, _fewer(one, outlook)),
    ):
        if to is not None:
            found = Better(kind=kind, of=one, to=to, ratio=step_ratio(one.found, to))
            hours = found.saved_hours
            if hours.low > 0 and hours.median >= LEAST_SAVING * one.hours:
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


def change_of(each: Better) -> str:
    """The flags of the script that make the change."""
    of, to = each.of, each.to.job
    known: Mapping[str, Mapping[str, str]] = shipped_yaml("changes.yaml", __file__)
    flags = known.get(parse_text(of.config, "history").trainer or "") or known.get(to.framework, {})
    if each.kind is OpportunityKind.MIXED_PRECISION:
        if to.precision is Precision.MIXED_BF16_FP32 and "bf16" in flags:
            return flags["bf16"]
        found = flags.get("fp16", "mixed precision of the trainer")
        return found if to.precision is Precision.MIXED_FP16_FP32 else f"{found}{_FP16_ALONE}"
    words = [f"#SBATCH --gpus=TYPE:{to.gpus}, TYPE being this site's name of {to.gpu}"]
    if of.scheduler == "kubernetes":
        product = to.hardware.product
        words = [f"nvidia.com/gpu: {to.gpus} on nodes with nvidia.com/gpu.product={product}"]
    if to.micro_batch_size != of.job.micro_batch_size:
        words.append(flags.get("batch", "batch per GPU {batch}").format(batch=to.micro_batch_size))
    if to.micro_steps != of.job.micro_steps:
        words.append(flags.get("steps", "{steps} micro-steps").format(steps=to.micro_steps))
    if each.ratio.high > 1:
        words.append(f"and a time limit for a run up to {each.ratio.high:.2g} times as long")
    return ", ".join(words)


def check_of(each: Better) -> str:
    """The command that predicts the job before and after the change."""
    old, new = each.of.job, each.to.job
    before, after = _described(old), _described(new)
    if before != after:
        both = ((old, before), (new, after))
        return " && ".join(f"{PROGRAM} predict {job.model} {_on(job)} {rest}" for job, rest in both)
    return f"{PROGRAM} compare {old.model} {_on(old, new)} {before}"


def _on(*jobs: TrainingJob) -> str:
    gpus = dict.fromkeys(f"--gpu {job.gpu}" for job in jobs)
    precisions = dict.fromkeys(f"--precision {job.precision.value}" for job in jobs)
    return " ".join((*gpus, *precisions))


def _described(job: TrainingJob) -> str:
    """Options of the commands that say all of a job but its GPU, its precision and its length."""
    words = [f"--gpus {job.gpus}", f"--gpus-per-node {job.gpus_per_node}"]
    words += [f"--batch-size {job.micro_batch_size}", f"--grad-accum {job.micro_steps}"]
    for name, told in shipped_yaml("keys.yaml").items():
        value = getattr(job, name)
        if "help" in told and name not in _APART and value != _DEFAULTS[name]:
            option = "--" + told.get("option", name).replace("_", "-")
            texts = [(one,) for one in value] if "repeated" in told else [value]
            words += [f"{option} {shlex.quote(value_text(one))}" for one in texts]
    return " ".join(words)


def _row(group: Sequence[Better], terms: Terms) -> Opportunity:
    first = max(group, key=lambda each: each.of.hours)
    job, of = first.of.job, first.of
    grid = terms.tariff.grid_g_per_kwh
    kwh = total(
        each.saved(gpu_watts(each.of.found, terms) / 1000, gpu_watts(each.to, terms) / 1000)
        for each in group
    )
    prices = terms.tariff.per_gpu_hour
    pairs = [(each, prices.get(each.of.job.gpu), prices.get(each.to.job.gpu)) for each in group]
    costs = [
        each.saved(old, new) for each, old, new in pairs if old is not None and new is not None
    ]
    to, ratio = first.to.job, first.ratio.median
    advice = f"{_gpus(to)}, {ratio:.2g} times as long".replace(" 1 times", " about")
    if first.kind is OpportunityKind.MIXED_PRECISION:
        advice = f"{to.precision.value}, {1 / ratio:.2g} times as fast"
    weakest = max((of.found, first.to), key=lambda one: one.deviation)
    return Opportunity(
        kind=first.kind,
        what=f"{job.model} {job.precision.value} on {_gpus(job)}: {advice}",
        users=tuple(sorted({user for each in group for user in each.of.users})),
        jobs=sum(each.of.jobs for each in group),
        gpu_hours=sum(each.of.hours for each in group),
        saved_gpu_hours=total(each.saved_hours for each in group),
        saved_cost=total(costs) if len(costs) == len(group) else None,
        saved_kwh=kwh,
        saved_co2e_kg=None if grid is None else kwh.times(grid / 1000),
        evidence="; ".join(weakest.evidence),
        change=change_of(first),
        command=check_of(first),
    )


def _gpus(job: TrainingJob) -> str:
    return f"{job.gpus} x {job.gpu}"
