"""`precision-time sweep`: what a whole search takes, before it starts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import JobError
from ..optional import needs
from ..units import MISSING, duration, gibibytes, percent, short, span
from .console import format_option, show_json, show_table
from .costs import KWH_J, cost_options, kilowatt_hours, money, take_terms
from .options import assumed, listed_options, micro_batch, predictor

if TYPE_CHECKING:
    from ..planning.sweeps.search import Search, SweptConfiguration, Total

MARK = "*"
TOO_LARGE = "x"
NONE_FITS = 1
HEAD = ("batch", "a trial", "GPU-h", "cost", "trials")


@click.command()
@click.argument("space", type=click.Path(dir_okay=False, path_type=Path))
@listed_options("search")
@cost_options
@click.option("--version", help="Stored predictor to use  [default: the one in use]")
@format_option
def sweep(
    space: Path,
    gpu_hours: float | None,
    budget: float | None,
    version: str | None,
    form: str,
    **fields: Any,
) -> None:
    """Predict what the search in the file SPACE takes: GPU-hours, cost and energy.

    With --gpu-hours or --budget also how many trials of which configurations to keep: the most
    that fit, cheapest first. Exit code 1 means that not all fit. Configurations beyond the memory
    of their GPUs are marked and get no trials. docs/how-to/sweeps.md has the file.
    """
    with needs("sweep"):
        from ..planning.sweeps.search import read_space, search_of, within
    from ..planning.cost import Terms

    terms = take_terms(fields) or Terms()
    for name, value in (("gpu_hours", gpu_hours), ("budget", budget)):
        if value is not None and not value > 0:
            raise JobError(name, value, "expected a number above 0")
    if budget is not None and not terms.tariff.per_gpu_hour:
        raise JobError("budget", budget, "it needs a --prices file with the price of a GPU")
    if fields["loader_rate"] is not None:
        raise JobError("loader_rate", fields["loader_rate"], "a sweep does not take it")
    search = search_of(predictor(version), read_space(space), terms)
    kept = within(search, gpu_hours=gpu_hours, budget=budget)
    if form == "json":
        _show_json(search, kept)
    else:
        _show_text(search, kept, terms.tariff.currency)
    if kept.trials < search.trials:
        raise click.exceptions.Exit(NONE_FITS)


def _show_json(search: Search, kept: Search) -> None:
    low, high = search.interval()
    efficient = set(map(id, search.efficient()))
    lines = [
        {
            **one.plan.as_dict(),
            "trials": one.trials,
            "kept_trials": left.trials,
            "efficient": id(one.plan) in efficient,
            "fits": one.plan.found.memory.ok,
        }
        for one, left in zip(search.configurations, kept.configurations, strict=True)
    ]
    show_json(
        {
            "trials": search.trials,
            "kept_trials": kept.trials,
            "mean_share": search.share,
            "total": asdict(search.total()),
            "total_low": asdict(low),
            "total_high": asdict(high),
            "kept_total": asdict(kept.total()),
            "configurations": lines,
        }
    )


def _show_text(search: Search, kept: Search, currency: str) -> None:
    efficient = set(map(id, search.efficient()))
    pairs = list(zip(search.configurations, kept.configurations, strict=True))
    rows = [_cells(one, left.trials, id(one.plan) in efficient) for one, left in pairs]
    show_table(("", "model", "GPUs", "precision", *HEAD), rows, left=4)
    click.echo(
        f"\n{MARK} of the ways to run a training: none beats it in time without costing more"
    )
    for one in search.too_large:
        fit = one.plan.found.memory
        advice = [a.text for a in fit.advice]
        need = f"{gibibytes(fit.need_bytes)} of {gibibytes(fit.have_bytes)} per GPU"
        would = f"; would fit: {', '.join(advice)}" if advice else ""
        batch = one.plan.found.job.micro_batch_size
        click.echo(
            f"{TOO_LARGE} does not fit, no trials: {one.plan}, batch {batch} needs {need}{would}"
        )
    (low, high), total = search.interval(), search.total()
    click.echo(f"\n{search.trials} trials, {percent(search.share)} of their length on average")
    for name, value, note in _lines(total, low, high, currency):
        click.echo(f"{name:<18}{value}  (95 %: {note})")
    if told := "\n".join(assumed(one.plan.found for one in search.configurations)).rstrip():
        click.echo(f"\n{told}")
    if kept.trials < search.trials:
        left = kept.total()
        click.echo(
            f"\nwithin the budget: {kept.trials} of {search.trials} trials, "
            f"{short(left.gpu_hours)} GPU-hours"
        )


def _lines(total: Total, low: Total, high: Total, currency: str) -> list[tuple[str, str, str]]:
    hours = span(low.gpu_hours, high.gpu_hours, short)
    lines = [("GPU-hours", short(total.gpu_hours), hours)]
    elapsed = span(low.elapsed_s, high.elapsed_s)
    lines.append(("elapsed", duration(total.elapsed_s), elapsed))
    if total.amount is not None and low.amount is not None and high.amount is not None:
        amounts = span(low.amount, high.amount, short)
        lines.append(("cost", money(total.amount, currency), amounts))
    energy = f"{span(low.energy_j / KWH_J, high.energy_j / KWH_J, short)} kWh"
    return [*lines, ("energy (estimate)", kilowatt_hours(total.energy_j), energy)]


def _cells(one: SweptConfiguration, kept: int, efficient: bool) -> list[str]:
    job, cost = one.plan.found.job, one.plan.cost
    batch, took = micro_batch(one.plan.found.runs), duration(cost.seconds)
    amount = MISSING if cost.amount is None else f"{cost.amount:,.2f}"
    mark = MARK if efficient else "" if one.plan.found.memory.ok else TOO_LARGE
    how = [mark, job.model, f"{job.gpus} x {job.gpu}", job.precision.value, batch, took]
    return [*how, short(cost.gpu_hours), amount, f"{kept} of {one.trials}"]
