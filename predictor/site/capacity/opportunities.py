"""Like jobs that one change would have served better, with what rests on what.

Hours are the measured ones of the period, times one less the predicted ratio of times. A change is
listed only where even the cautious end of its 95 % interval saves. Opportunities are each counted
alone: two of the same job do not add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text, stated_text
from ...identify.stated import Stated
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from .better import Better, candidates, changes_of, saved
from .configurations import Configuration, Outlook, gpu_watts
from .report_data import Opportunity, OpportunityKind, Range, total

# Rows of one kind, the largest first.
MOST_ROWS = 50


def better(
    found: Sequence[Configuration], outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> list[Opportunity]:
    """Every opportunity, by kind, at most MOST_ROWS of each."""
    outlook.of(job for one in found for job in candidates(one.job, gpu_types, terms))
    changes = [each for one in found for each in changes_of(one, outlook, gpu_types, terms)]
    groups: dict[tuple[str, ...], list[Better]] = defaultdict(list)
    for each in changes:
        groups[_alike(each)].append(each)
    rows = [_row(group, terms) for group in groups.values()]
    return [
        row
        for kind in OpportunityKind
        for row in ranked(r for r in rows if r.kind is kind)[:MOST_ROWS]
    ]


def ranked(rows: Iterable[Opportunity]) -> list[Opportunity]:
    """The largest first, by money where it is known, else by GPU-hours."""
    return sorted(rows, key=_size, reverse=True)


def command_of(config: str, changes: Mapping[str, object], gpu: str, gpus: int, by: str) -> str:
    """How the next such job would be sent, by the scheduler it came from."""
    said = parse_text(config, "history")
    kept = {k: v for k, v in said.values.items() if k not in ("gpu", "gpus")}
    stated = {k: v for k, v in (kept | dict(changes)).items() if v not in ("", (), None)}
    text = stated_text(Stated(stated)).replace("'", "")
    if by == "kubernetes":
        return f"kubectl annotate --overwrite job/NAME 'precision-time.io/job={text}'"
    return f"sbatch --gpus={gpu}:{gpus} --comment='{text}' job.sh"


def evidence_of(*found: Prediction) -> str:
    """What predictions rest on: the newest of them to the predictor."""
    weakest = max(found, key=lambda one: one.deviation)
    return "; ".join(weakest.evidence)


def _alike(each: Better) -> tuple[str, ...]:
    job, to = each.of.job, each.to.job
    return (
        each.kind.value,
        job.model,
        job.precision.value,
        job.gpu,
        str(job.gpus),
        to.gpu,
        str(to.gpus),
        to.precision.value,
    )


def _row(group: Sequence[Better], terms: Terms) -> Opportunity:
    first = max(group, key=lambda each: each.of.hours)
    job, to, of = first.of.job, first.to.job, first.of
    grid = terms.tariff.grid_g_per_kwh
    kwh = total(_saved_kwh(each, terms) for each in group)
    costs = [_saved_cost(each, terms) for each in group]
    changed = (
        {"precision": to.precision, "options": to.options}
        if (first.kind is OpportunityKind.MIXED_PRECISION)
        else _batch(to)
    )
    return Opportunity(
        kind=first.kind,
        what=f"{job.model} {job.precision.value} on {_gpus(job)}: {_advice(first)}",
        users=tuple(sorted({user for each in group for user in each.of.users})),
        jobs=sum(each.of.jobs for each in group),
        gpu_hours=sum(each.of.hours for each in group),
        saved_gpu_hours=total(each.saved_hours for each in group),
        saved_cost=None if None in costs else total(cost for cost in costs if cost is not None),
        saved_kwh=kwh,
        saved_co2e_kg=None if grid is None else kwh.times(grid / 1000),
        evidence=evidence_of(of.found, first.to),
        command=_in_script(first) + command_of(of.config, changed, to.gpu, to.gpus, of.scheduler),
    )


@cache
def _switches() -> Mapping[str, str]:
    path = Path(__file__).parent / "mixed_precision.yaml"
    data: Mapping[str, str] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return data


def _in_script(each: Better) -> str:
    """What has to change in the script first: saying another precision does not switch it on."""
    if each.kind is not OpportunityKind.MIXED_PRECISION:
        return ""
    switch = _switches().get(each.to.job.framework, "the trainer's mixed precision")
    return f"# in the script: {switch}; once it is there: "


def _advice(each: Better) -> str:
    to = each.to.job
    if each.kind is OpportunityKind.MIXED_PRECISION:
        return f"{to.precision.value}, {1 / each.ratio.median:.2g} times as fast"
    return f"{_gpus(to)}, {each.ratio.median:.2g} times as long"


def _batch(to: TrainingJob) -> dict[str, object]:
    """The batch of the changed job, as it has to be stated where it was split anew."""
    return {"batch_size": to.micro_batch_size, "grad_accum": to.micro_steps}


def _gpus(job: TrainingJob) -> str:
    return f"{job.gpus} x {job.gpu}"


def _saved_cost(each: Better, terms: Terms) -> Range | None:
    prices = terms.tariff.per_gpu_hour
    old, new = prices.get(each.of.job.gpu), prices.get(each.to.job.gpu)
    if old is None or new is None:
        return None
    return saved(each.of.hours, each.left, old, new)


def _saved_kwh(each: Better, terms: Terms) -> Range:
    old, new = gpu_watts(each.of.found, terms) / 1000, gpu_watts(each.to, terms) / 1000
    return saved(each.of.hours, each.left, old, new)


def _size(row: Opportunity) -> tuple[float, float]:
    cost = 0.0 if row.saved_cost is None else row.saved_cost.median
    return cost, row.saved_gpu_hours.median
