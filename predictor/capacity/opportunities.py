"""Like jobs that one change would have served better, with what rests on what.

Hours are the measured ones of the period, times one less the predicted ratio of times. A change is
listed only where even the cautious end of its 95 % interval saves. Opportunities are each counted
alone: two of the same job do not add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ..cost import Terms
from ..identify.grammar import parse_text, stated_text
from ..identify.stated import Stated
from ..job import TrainingJob
from ..prediction import Prediction
from .changes import elsewhere, in_mixed_precision, with_fewer_gpus
from .configurations import Configuration, Outlook, gpu_watts, step_ratio
from .report_data import Opportunity, OpportunityKind, Range

# A change that saves less than this share of the GPU-hours (or the money) is not worth a mail.
LEAST_SAVING = 0.05
# Twice the GPUs should give at least this share of twice the speed.
LEAST_EFFICIENCY = 0.5
# A job may take this much longer on another type, with prices and without.
SLOWER_FOR_MONEY, SLOWER = 2.0, 1.1
# Rows of one kind, the largest first.
MOST_ROWS = 50


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
            low=scale * self.ratio.low, median=scale * self.ratio.median,
            high=scale * self.ratio.high,
        )  # fmt: skip

    @property
    def saved_hours(self) -> Range:
        """GPU-hours of the GPUs they ran on: all of them, where they would have run elsewhere."""
        if self.kind is OpportunityKind.OTHER_GPU:
            return Range(low=self.of.hours, median=self.of.hours, high=self.of.hours)
        return _saved(self.of.hours, self.left, 1.0, 1.0)


def better(
    found: Sequence[Configuration], outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> list[Opportunity]:
    """Every opportunity but shorter limits, by kind, at most MOST_ROWS of each."""
    outlook.of(job for one in found for job in _candidates(one.job, gpu_types, terms))
    changes = [each for one in found for each in _better(one, outlook, gpu_types, terms)]
    groups: dict[tuple[str, ...], list[Better]] = defaultdict(list)
    for each in changes:
        groups[_alike(each)].append(each)
    rows = [_row(group, terms) for group in groups.values()]
    return [
        row for kind in OpportunityKind
        for row in ranked(r for r in rows if r.kind is kind)[:MOST_ROWS]
    ]  # fmt: skip


def ranked(rows: Iterable[Opportunity]) -> list[Opportunity]:
    """The largest first, by money where it is known, else by GPU-hours."""
    return sorted(rows, key=_size, reverse=True)


def command_of(config: str, changes: Mapping[str, object], gpu: str, gpus: int, by: str) -> str:
    """How the next such job would be sent, by the scheduler it came from."""
    said = parse_text(config, "history")
    kept = {k: v for k, v in said.values.items() if k not in ("gpu", "gpus")}
    text = stated_text(Stated(kept | dict(changes))).replace("'", "")
    if by == "kubernetes":
        return f"kubectl annotate --overwrite job/NAME 'precision-time.io/job={text}'"
    return f"sbatch --gpus={gpu}:{gpus} --comment='{text}' job.sh"


def evidence_of(*found: Prediction) -> str:
    """What predictions rest on: the newest of them to the predictor."""
    weakest = max(found, key=lambda one: one.deviation)
    return "; ".join(weakest.evidence)


def _candidates(job: TrainingJob, gpu_types: Sequence[str], terms: Terms) -> Iterator[TrainingJob]:
    mixed = in_mixed_precision(job)
    if mixed is not None:
        yield mixed
    yield from _elsewhere(job, gpu_types, terms)
    yield from islice(with_fewer_gpus(job), 1)  # what lies below is rarely asked for


def _better(
    one: Configuration, outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> Iterator[Better]:
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


def _alike(each: Better) -> tuple[str, ...]:
    job, to = each.of.job, each.to.job
    return (
        each.kind.value, job.model, job.precision.value, job.gpu, str(job.gpus), to.gpu,
        str(to.gpus), to.precision.value,
    )  # fmt: skip


def _row(group: Sequence[Better], terms: Terms) -> Opportunity:
    first = max(group, key=lambda each: each.of.hours)
    job, to, of = first.of.job, first.to.job, first.of
    grid = terms.tariff.grid_g_per_kwh
    kwh = add(_saved_kwh(each, terms) for each in group)
    costs = [_saved_cost(each, terms) for each in group]
    changed = {"precision": to.precision, "options": to.options} if (
        first.kind is OpportunityKind.MIXED_PRECISION
    ) else _batch(to)  # fmt: skip
    return Opportunity(
        kind=first.kind,
        what=f"{job.model} {job.precision.value} on {_gpus(job)}: {_advice(first)}",
        users=tuple(sorted({user for each in group for user in each.of.users})),
        jobs=sum(each.of.jobs for each in group),
        gpu_hours=sum(each.of.hours for each in group),
        saved_gpu_hours=add(each.saved_hours for each in group),
        saved_cost=None if None in costs else add(cost for cost in costs if cost is not None),
        saved_kwh=kwh,
        saved_co2e_kg=None if grid is None else times(kwh, grid / 1000),
        evidence=evidence_of(of.found, first.to),
        command=command_of(of.config, changed, to.gpu, to.gpus, of.scheduler),
    )


def _advice(each: Better) -> str:
    to = each.to.job
    if each.kind is OpportunityKind.MIXED_PRECISION:
        return f"{to.precision.value}, {1 / each.ratio.median:.2g} times as fast"
    if each.kind is OpportunityKind.OTHER_GPU:
        return f"{_gpus(to)}, {each.ratio.median:.2g} times the time"
    return f"{_gpus(to)}, {each.ratio.median:.2g} times the time"


def _batch(to: TrainingJob) -> dict[str, object]:
    """The batch of the changed job, as it has to be stated where it was split anew."""
    return {"batch_size": to.micro_batch_size, "grad_accum": to.grad_accum}


def _gpus(job: TrainingJob) -> str:
    return f"{job.gpus} x {job.gpu}"


def _saved_cost(each: Better, terms: Terms) -> Range | None:
    prices = terms.tariff.per_gpu_hour
    old, new = prices.get(each.of.job.gpu), prices.get(each.to.job.gpu)
    if old is None or new is None:
        return None
    return _saved(each.of.hours, each.left, old, new)


def _saved_kwh(each: Better, terms: Terms) -> Range:
    old, new = gpu_watts(each.of.found, terms) / 1000, gpu_watts(each.to, terms) / 1000
    return _saved(each.of.hours, each.left, old, new)


def _saved(hours: float, left: Range, old: float, new: float) -> Range:
    """What hours at ``old`` each cost more than what would be left of them at ``new`` each."""
    had = hours * old
    return Range(
        low=had - left.high * new, median=had - left.median * new, high=had - left.low * new
    )


def add(ranges: Iterable[Range]) -> Range:
    """A sum whose parts err together, as predictions of one model do."""
    parts = list(ranges)
    return Range(
        low=sum(r.low for r in parts), median=sum(r.median for r in parts),
        high=sum(r.high for r in parts),
    )  # fmt: skip


def times(one: Range, factor: float) -> Range:
    """A range in another unit; ``factor`` is not negative."""
    return Range(low=one.low * factor, median=one.median * factor, high=one.high * factor)


def _size(row: Opportunity) -> tuple[float, float]:
    cost = 0.0 if row.saved_cost is None else row.saved_cost.median
    return cost, row.saved_gpu_hours.median
