"""Like jobs that one change would have served better, with what rests on what.

Hours are the measured ones of the period, times one less the predicted ratio of times. A change is
listed only where even the cautious end of its 95 % interval saves. Opportunities are each counted
alone: two of the same job do not add up. A change is one of the script's own flags: what is said
beside the script (a comment, an annotation) changes nothing of what it computes.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from ...identify.grammar import parse_text
from ...job.precision import Precision
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from .better import Better, candidates, changes_of, saved
from .configurations import Configuration, Outlook, gpu_watts
from .report_data import Opportunity, OpportunityKind, Range, total

# Rows of one kind, the largest first.
MOST_ROWS = 50
PROGRAM = "precision-time"
# What a check says of a job besides its GPUs, precision and batch, by the option of the commands.
_STATED = (
    *("seq_len", "image_size", "optimizer", "framework", "sharding"),
    *("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"),
)


def better(
    found: Sequence[Configuration], outlook: Outlook, gpu_types: Sequence[str], terms: Terms
) -> list[Opportunity]:
    """Every opportunity, by kind, at most MOST_ROWS of each."""
    outlook.of(job for one in found for job in candidates(one.job, gpu_types, terms))
    groups: dict[tuple[str, ...], list[Better]] = defaultdict(list)
    for one in found:
        for each in changes_of(one, outlook, gpu_types, terms):
            groups[each.kind, one.job.model, *_setting(one.job), *_setting(each.to.job)] += [each]
    rows = [_row(group, terms) for group in groups.values()]
    return [
        row
        for kind in OpportunityKind
        for row in ranked(r for r in rows if r.kind is kind)[:MOST_ROWS]
    ]


def ranked(rows: Iterable[Opportunity]) -> list[Opportunity]:
    """The largest first, by money where it is known, else by GPU-hours."""
    return sorted(rows, key=_size, reverse=True)


_FP16_ALONE = " (no flag for bf16 is known: this is fp16)"


def change_of(each: Better) -> str:
    """The flags of the script that make the change."""
    of, to = each.of, each.to.job
    known = _changes()
    flags = known.get(parse_text(of.config, "history").trainer or "") or known.get(to.framework, {})
    if each.kind is OpportunityKind.MIXED_PRECISION:
        if to.precision is Precision.MIXED_BF16_FP32 and "bf16" in flags:
            return flags["bf16"]
        found = flags.get("fp16", "mixed precision of the trainer")
        return found if to.precision is Precision.MIXED_FP16_FP32 else f"{found}{_FP16_ALONE}"
    words = [_request(to, of.scheduler)]
    if to.micro_batch_size != of.job.micro_batch_size:
        words.append(flags.get("batch", "batch per GPU {batch}").format(batch=to.micro_batch_size))
    if to.micro_steps != of.job.micro_steps:
        words.append(flags.get("steps", "{steps} micro-steps").format(steps=to.micro_steps))
    return " ".join(words)


def check_of(each: Better) -> str:
    """The command that predicts the job before and after the change."""
    old, new = each.of.job, each.to.job
    stated = parse_text(each.of.config, "history").values
    same = [
        f"--{name.replace('_', '-')} {_shown(stated[name])}" for name in _STATED if name in stated
    ]
    same += [f"--option {name}={value}" for name, value in old.options]
    if each.kind is OpportunityKind.FEWER_GPUS:
        return " && ".join(f"{PROGRAM} predict {_said(job, job, same)}" for job in (old, new))
    return f"{PROGRAM} compare {_said(old, new, same)}"


def _said(old: TrainingJob, new: TrainingJob, same: Sequence[str]) -> str:
    gpus = dict.fromkeys([old.gpu, new.gpu])
    precisions = dict.fromkeys([old.precision.value, new.precision.value])
    words = [old.model, *(f"--gpu {name}" for name in gpus)]
    words += [f"--precision {name}" for name in precisions]
    words += [f"--gpus {new.gpus}", f"--gpus-per-node {new.gpus_per_node}"]
    words += [f"--batch-size {new.micro_batch_size}", f"--grad-accum {new.micro_steps}"]
    return " ".join([*words, *same])


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(str(part) for part in value)
    return shlex.quote(str(value))


def _request(to: TrainingJob, scheduler: str) -> str:
    """How the GPUs are asked for."""
    if scheduler == "kubernetes":
        return (
            f"nvidia.com/gpu: {to.gpus} on nodes with nvidia.com/gpu.product={to.hardware.product}"
        )
    return f"#SBATCH --gpus=TYPE:{to.gpus}, TYPE being this site's name of {to.gpu}"


def _setting(job: TrainingJob) -> tuple[str, ...]:
    return job.precision.value, job.gpu, str(job.gpus)


def _row(group: Sequence[Better], terms: Terms) -> Opportunity:
    first = max(group, key=lambda each: each.of.hours)
    job, of = first.of.job, first.of
    grid = terms.tariff.grid_g_per_kwh
    kwh = total(_saved_kwh(each, terms) for each in group)
    costs = [cost for each in group if (cost := _saved_cost(each, terms)) is not None]
    weakest = max((of.found, first.to), key=lambda one: one.deviation)
    return Opportunity(
        kind=first.kind,
        what=f"{job.model} {job.precision.value} on {_gpus(job)}: {_advice(first)}",
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


@cache
def _changes() -> Mapping[str, Mapping[str, str]]:
    path = Path(__file__).with_name("changes.yaml")
    data: Mapping[str, Mapping[str, str]] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return data


def _advice(each: Better) -> str:
    to = each.to.job
    if each.kind is OpportunityKind.MIXED_PRECISION:
        return f"{to.precision.value}, {1 / each.ratio.median:.2g} times as fast"
    return f"{_gpus(to)}, {each.ratio.median:.2g} times as long"


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
