"""`precision-time compare` and `plan`: one job on several GPUs, numbers of GPUs, precisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from profiles.gpus import find_gpu

from ..errors import JobError
from ..job.precision import Precision, parse_precision, tensor_peak
from ..units import count, duration, short, span
from . import options
from .console import GAP, format_option, show_json, show_table, warn
from .costs import cost_options, kilowatt_hours, money, seconds_of, take_terms

if TYPE_CHECKING:
    from ..estimate.core import Predictor
    from ..estimate.prediction import Prediction
    from ..job.training_job import TrainingJob
    from ..planning.plans import Plan, Plans

GPUS = ("v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb")
PRECISIONS = ("fp32", "tf32", "mixed_fp16_fp32", "mixed_bf16_fp32")
FOUND_NONE = 1
MARK = "->"


@dataclass(frozen=True, slots=True)
class Line:
    """A prediction, and how many times faster it is than FP32 on its GPU and the slowest line."""

    found: Prediction
    over_fp32: float
    over_slowest: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        speedups = {"speedup_over_fp32": self.over_fp32, "speedup_over_slowest": self.over_slowest}
        return self.found.as_dict() | speedups


@click.command()
@options.model_argument
@options.repeated_option("gpu", ", ".join(GPUS))
@options.repeated_option("precision", ", ".join(PRECISIONS))
@options.job_options("gpu", "precision")
@options.strict_option
@click.option("--version", help="Stored predictor to use  [default: the one in use]")
@format_option
def compare(
    model: str,
    gpu: Sequence[str],
    precision: Sequence[str],
    version: str | None,
    strict: bool,
    form: str,
    **fields: Any,
) -> None:
    """Compare GPUs and precisions for a training job of MODEL.

    Shows the time of the whole job where --steps or --epochs is given, else that of one step.
    Precisions that a GPU has no fast units for are skipped.
    """
    jobs, skipped = chosen(model, gpu or GPUS, precision or PRECISIONS, fields)
    fitted = options.predictor(version, fields["source"])
    lines = compared(fitted, jobs)
    if form == "json":
        found = [line.as_dict() for line in lines]
        show_json({"model": lines[0].found.job.model, "lines": found, "left_out": skipped})
    else:
        _show_comparison(lines, skipped)
    options.warn_of_memory([line.found for line in lines], strict=strict)


def _show_comparison(lines: Sequence[Line], skipped: Sequence[str]) -> None:
    first = lines[0].found
    length = "" if first.steps is None else f", {count(first.steps)} steps"
    batch = f"{count(first.job.step_samples)} samples per step"
    if first.job.batch_size is not None:
        batch = f"batch {options.micro_batch(first.job)} per GPU"
    gpus = f"{first.job.gpus} GPU" + "s" * (first.job.gpus > 1)
    click.echo(f"{first.job.model} on {gpus}, {batch}{length}\n")
    whole = "total" if first.steps is not None else "step"
    head = ["GPU", "precision", whole, "50 %", "95 %", "vs FP32"]
    head += ["GPU-h"] if whole == "total" else []
    unfit = {number for number, line in enumerate(lines) if not line.found.memory.ok}
    show_table(head, list(map(_line_cells, lines)), left=2, red=unfit)
    told = "\n".join(options.assumed(line.found for line in lines)).rstrip()
    no_units = [] if not skipped else ["skipped, the GPU has no units for the format", *skipped]
    for part in filter(None, (told, f"\n{GAP}".join(no_units))):
        click.echo(f"\n{part}")
    for warning in dict.fromkeys(w for line in lines for w in line.found.warnings):
        warn(warning)


def chosen(
    model: str, gpus: Sequence[str], precisions: Sequence[str], fields: Mapping[str, Any]
) -> tuple[list[TrainingJob], list[str]]:
    """Every GPU at every precision it has units for, and the combinations that are skipped.

    Raises JobError where nothing is left.
    """
    pairs, skipped = with_units(gpus, precisions)
    jobs = [options.job_of(model, {**fields, "gpu": gpu, "precision": p}) for gpu, p in pairs]
    if not jobs:
        expected = f"expected one that a GPU has units for: {', '.join(skipped)} has none"
        raise JobError("precision", ", ".join(precisions), expected)
    return jobs, skipped


def with_units(
    gpus: Sequence[str], precisions: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Each GPU with each precision, and the combinations that are skipped.

    Those are left whose format of matrix products the GPU has on tensor cores or natively.
    """
    pairs, skipped = dict[tuple[str, str], tuple[str, str]](), []
    for name, precision in product(gpus, dict.fromkeys(precisions)):
        gpu, dtype = find_gpu(name), parse_precision(precision).matmul_dtype
        if tensor_peak(gpu, dtype) or dtype.value in gpu.peak_flops:
            pairs.setdefault((gpu.name, precision), (name, precision))
        else:
            skipped.append(f"{precision} on {gpu.name}")
    return list(pairs.values()), list(dict.fromkeys(skipped))


def compared(model: Predictor, jobs: Sequence[TrainingJob]) -> list[Line]:
    """Every job predicted, with its speed-ups; FP32 is predicted even where nobody asked for it."""
    plain = [job.but(precision=Precision.FP32) for job in jobs]
    found = model.predict_many([*jobs, *plain])
    asked, bases = found[: len(jobs)], found[len(jobs) :]
    slowest_s = max(p.step_s for p in asked)
    return [
        Line(p, base.step_s / p.step_s, slowest_s / p.step_s)
        for p, base in zip(asked, bases, strict=True)
    ]


def _line_cells(line: Line) -> list[str]:
    found = line.found
    hours = [] if found.gpu_hours is None else [short(found.gpu_hours)]
    return [
        found.job.gpu,
        found.job.precision.value + ("" if found.memory.ok else f" {options.TOO_LARGE}"),
        duration(found.step_s if found.total_s is None else found.total_s),
        *(span(*found.band(level)) for level in (0.5, 0.95)),
        f"{line.over_fp32:.2f} x",
        *hours,
    ]


@click.command()
@options.model_argument
@click.option("--gpus", "counts", default="1,2,4,8", show_default=True, help="Numbers of GPUs.")
@options.repeated_option("gpu", f"those with a price, else {', '.join(GPUS)}")
@options.repeated_option("precision", ", ".join(PRECISIONS))
@options.listed_options("plan")
@cost_options
@options.job_options("gpu", "gpus", "precision")
@click.option("--version", help="Stored predictor to use  [default: the one in use]")
@format_option
def plan(
    model: str,
    counts: str,
    gpu: Sequence[str],
    precision: Sequence[str],
    budget: float | None,
    within: str | None,
    quantile: float | None,
    every: bool,
    version: str | None,
    form: str,
    **fields: Any,
) -> None:
    """Plan a training job of MODEL: which GPUs, how many, at what precision.

    With --budget the fastest plan that costs no more, with --within alone the cheapest that takes
    no longer (in GPU-hours without prices). Plans must fit the memory of their GPUs. Exit code 1
    means that there is none.
    """
    from ..planning.cost import Terms
    from ..planning.plans import make_plans

    terms = take_terms(fields, quantile) or Terms()
    prices = terms.tariff.per_gpu_hour
    if budget is None and within is None:
        raise click.UsageError("give --budget, --within or both")
    if budget is not None and not prices:
        raise JobError("budget", budget, "it needs a --prices file with the price of a GPU")
    if budget is not None and not budget > 0:
        raise JobError("budget", budget, "expected an amount above 0")
    within_s = None if within is None else seconds_of("within", within)
    loader_rate = fields.pop("loader_rate")
    gpus = numbers(counts)
    # Plans must do the same work: steps of a batch per GPU do more on more GPUs.
    per_gpu = fields["batch_size"] is not None and fields["global_batch_size"] is None
    if fields["steps"] is not None and per_gpu and len(gpus) > 1:
        raise JobError(
            "steps",
            fields["steps"],
            "steps of a batch per GPU are more work on more GPUs: give epochs, or "
            "global_batch_size instead of batch_size",
        )
    cards = gpu or tuple(prices) or GPUS
    jobs, skipped = candidates(model, cards, precision or PRECISIONS, gpus, fields)
    fitted = options.predictor(version, fields["source"])
    plans = make_plans(fitted, jobs, terms, loader_rate=loader_rate)
    # Within a budget the fastest; within a deadline alone the cheapest.
    chosen = (plans.cheapest if budget is None else plans.fastest)(budget, within_s)
    skipped = [*skipped, *plans.skipped]
    if form == "json":
        efficient = set(map(id, plans.efficient()))
        lines = [
            {**one.as_dict(), "chosen": one is chosen, "efficient": id(one) in efficient}
            for one in plans.plans
        ]
        show_json({"plans": lines, "left_out": skipped})
    else:
        wish = [] if budget is None else [money(budget, terms.tariff.currency)]
        wish += [] if within_s is None else [duration(within_s)]
        _show_text(plans, chosen, skipped, " and ".join(wish), every)
    if chosen is None:
        raise click.exceptions.Exit(FOUND_NONE)


def numbers(text: str) -> tuple[int, ...]:
    """``1,2,4`` as numbers in rising order, each once; raises JobError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise JobError("gpus", text, "expected numbers of at least 1 with commas between them")
    return tuple(sorted({int(part) for part in parts}))


def candidates(
    model: str,
    gpus: Sequence[str],
    precisions: Sequence[str],
    counts: Sequence[int],
    fields: Mapping[str, Any],
) -> tuple[list[TrainingJob], list[str]]:
    """Every job that can be stated, and why the others cannot."""
    pairs, without = with_units(gpus, precisions)
    jobs: list[TrainingJob] = []
    skipped = [f"{combination}: no units for the format" for combination in without]
    for (gpu, precision), number in product(pairs, counts):
        try:
            how = {"gpu": gpu, "gpus": number, "precision": precision}
            jobs.append(options.job_of(model, {**fields, **how}))
        except JobError as error:
            if error.field not in ("gpus", "global_batch_size"):
                raise
            skipped.append(f"{number} GPUs: {error}")
    return jobs, list(dict.fromkeys(skipped))


def _show_text(
    plans: Plans, chosen: Plan | None, skipped: Sequence[str], wish: str, every: bool
) -> None:
    shown = plans.plans if every else plans.efficient()
    if shown:
        priced = any(one.cost.amount is not None for one in shown)
        head = ["", "GPUs", "precision", "batch", "total"]
        head += [*(["cost"] if priced else []), "GPU-h", "energy"]
        show_table(head, [_plan_cells(one, one is chosen, priced) for one in shown], left=3)
    if not every and len(shown) < len(plans.plans):
        click.echo(f"\n{len(plans.plans) - len(shown)} plans that others beat: --all shows them")
    if skipped:
        click.echo("\nskipped")
        for line in skipped:
            click.echo(f"  {line}")
    cheapest, fastest = plans.cheapest(), plans.fastest()
    if chosen is not None:
        click.echo(f"\n{MARK} within {wish}: {_told(chosen)}\n")
        click.echo("\n".join(options.assumed([chosen.found])), nl=False)
        for warning in chosen.found.warnings:
            warn(warning)
    elif cheapest is None or fastest is None:
        click.echo(f"\nno plan within {wish}: none is possible")
    else:
        click.echo(f"\nno plan within {wish}")
        click.echo(f"cheapest: {_told(cheapest)}\nfastest: {_told(fastest)}")


def _told(one: Plan) -> str:
    """A plan, how long it takes and what it costs."""
    amount = one.cost.amount
    price = "" if amount is None else f", {money(amount, one.cost.currency)}"
    return f"{one}, {duration(one.seconds)}{price}"


def _plan_cells(one: Plan, chosen: bool, priced: bool) -> list[str]:
    job, cost = one.found.job, one.cost
    gpus, batch = f"{job.gpus} x {job.gpu}", options.micro_batch(one.found.runs)
    cells = [MARK if chosen else "", gpus, job.precision.value, batch, duration(one.seconds)]
    if priced:
        cells.append("-" if cost.amount is None else money(cost.amount, cost.currency))
    return [*cells, short(cost.gpu_hours), kilowatt_hours(cost.energy.energy_j)]
