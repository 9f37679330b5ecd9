"""`precision-time predict` and `explain`: the time of a training job, and what it is taken for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..units import count, duration, gibibytes, percent, short, span
from . import options
from .console import GAP, format_option, show_json, show_table, warn
from .costs import cost_lines, cost_options, take_terms

if TYPE_CHECKING:
    from ..estimate.prediction import Prediction
    from ..planning.cost import Terms

LABEL_WIDTH = 26
ENDS = (0.025, 0.975)  # the quantiles that 95 % lie between


@click.command()
@options.model_argument
@options.job_options()
@cost_options
@options.strict_option
@click.option("--version", "version", help="Stored predictor to use  [default: the one in use]")
@format_option
def predict(model: str, version: str | None, strict: bool, form: str, **fields: Any) -> None:
    """Predict how long a training job of MODEL takes.

    MODEL is a name of `precision-time catalog list`. Times are those of one optimizer step, and of
    the whole job where --steps or --epochs is given; then --prices adds cost, energy and CO2e.
    """
    from ..planning.plans import input_bound

    terms, loader_rate = take_terms(fields), fields.pop("loader_rate")
    job = options.job_of(model, fields)
    fitted = options.predictor(version, job.source)
    found = fitted.predict(job)
    if loader_rate is not None:
        found = input_bound(found, loader_rate)
    if form == "json":
        show_json(found.as_dict() | (_cost_dict(found, terms) if terms else {}))
    else:
        for line in list(text(found, terms)):  # all of them or, without a length, none
            click.echo(line)
        for warning in found.warnings:
            warn(warning)
    options.warn_of_memory([found], strict=strict)


@click.command()
@options.model_argument
@options.job_options()
@click.option("--version", "version", help="Stored predictor to use  [default: the one in use]")
@format_option
def explain(model: str, version: str | None, form: str, **fields: Any) -> None:
    """Show what a training job of MODEL is taken to be: what it states, and what is assumed.

    Takes the options of `predict`. Each line of its software has the option that fixed it or the
    source of the default; assumptions say how far they could move the total.
    """
    job = options.job_of(model, fields)
    fitted = options.predictor(version, job.source)
    found = fitted.predict(job)
    software = job.software
    if form == "json":
        settings = [
            {"field": s.name, "value": s.value, "stated": s.stated, "reason": s.reason}
            for s in software.settings
        ]
        told = {"framework": software.framework, "date": software.date, "software": settings}
        show_json(told | {"assumptions": [one.as_dict() for one in found.assumptions]})
        return
    click.echo(f"software: {software.framework} of {int(software.date)}\n")
    rows = [
        (s.name, str(s.value).lower(), "stated" if s.stated else "default", s.reason)
        for s in software.settings
    ]
    show_table(("field", "value", "is", "by"), rows, left=4)
    click.echo("\n" + "\n".join(options.assumed([found])).rstrip())


def text(found: Prediction, terms: Terms | None = None) -> Iterator[str]:
    """The lines of a prediction for people, with what it costs where there are terms."""
    from ..estimate.prediction import narrowing, rate, why_wide

    job = found.job
    nodes = f"{count(job.nodes)} node" + ("s" if job.nodes > 1 else "")
    if found.phases:
        yield f"{job.model}, {len(found.phases)} phases, {job.gpus} x {job.gpu} ({nodes})"
        yield from phases(found)
    else:
        yield f"{job.model}, {job.precision.value}, {count(job.gpus)} x {job.gpu} ({nodes})"
        batch = options.micro_batch(found.runs)
        yield f"batch {batch} per GPU, {count(job.step_samples)} samples per step"
    yield ""
    half, most = found.total_interval(0.5), found.total_interval()
    if half is not None and most is not None:
        yield _line("total", duration(found.total_s), f"50 %: {span(*half)}, 95 %: {span(*most)}")
    name, step, middle = "mean step", found.interval(), found.interval(0.5)
    bands = f"50 %: {span(middle.low_s, middle.high_s)}, 95 %: {span(step.low_s, step.high_s)}"
    yield _line(name if found.phases else "step", duration(found.step_s), bands)
    yield f"why so wide: {why_wide(found)}"
    if what := narrowing(found):
        yield f"narrower by: {what}"
    yield ""
    yield _line("throughput", f"{short(found.throughput)} samples/s", rate(found))
    if found.total_s is not None and most is not None:
        hours, low, high = (seconds * job.gpus / 3600 for seconds in (found.total_s, *most))
        yield _line("GPU-hours", short(hours), f"95 %: {span(low, high, short)}")
        yield _line("steps", count(found.steps))
    yield ""
    yield from _parts(found)
    yield ""
    yield from memory(found)
    yield ""
    if terms is not None:
        yield from costs(found, terms)
        yield ""
    yield from options.assumed([found])
    yield "evidence"
    yield from (f"{GAP}{line}" for line in found.evidence)


def phases(found: Prediction) -> Iterator[str]:
    """One line a phase: its length, its time, and what it is."""
    for number, (phase, one) in enumerate(zip(found.job.phases, found.phases, strict=True), 1):
        job, step_s = one.job, duration(one.step_s)
        lasts = f"{count(one.steps)} steps" if one.steps else f"{percent(phase.share or 0.0)}"
        length = f", {job.seq_len} tokens" if job.seq_len else ""
        took = f"{step_s} a step" if one.total_s is None else duration(one.total_s)
        batch = options.micro_batch(one.runs)
        what = f"{job.precision.value}, batch {batch} per GPU{length}"
        yield _line(f"{GAP}phase {number}, {lasts}", took, what)


def costs(found: Prediction, terms: Terms) -> Iterator[str]:
    """The total with its interruptions, and what it costs."""
    from ..planning.cost import cost_of

    cost, low, high = (cost_of(found, terms, level) for level in (None, *ENDS))
    stops = terms.interruptions
    if stops is not None and found.total_s is not None:
        expected = stops.expected(found.total_s, found.job.nodes)
        note = f"{short(expected)} expected; 95 %: {span(low.seconds, high.seconds)}"
        yield _line("with interruptions", duration(cost.seconds), note)
    yield from (_line(*line) for line in cost_lines(cost, low, high))


def _cost_dict(found: Prediction, terms: Terms) -> dict[str, Any]:
    """What ``costs`` says, as plain values for JSON."""
    from ..planning.cost import cost_of

    low, high = (cost_of(found, terms, level) for level in ENDS)
    ends = {
        "amount_low": low.amount,
        "amount_high": high.amount,
        "elapsed_low_s": low.seconds,
        "elapsed_high_s": high.seconds,
    }
    return {"cost": cost_of(found, terms).as_dict() | ends}


def memory(found: Prediction) -> Iterator[str]:
    """What a GPU must hold against what it has, and what would make a job fit that does not."""
    fit = found.memory
    verdict = "fits" if fit.ok else "does not fit"
    note = f"of {gibibytes(fit.have_bytes)} per GPU: {verdict} with a margin of {fit.margin:.0%}"
    yield _line("memory", gibibytes(fit.need_bytes), note)
    if not fit.ok:
        yield from (f"{GAP}would fit: {advice.text}" for advice in fit.advice)


def _parts(found: Prediction) -> Iterator[str]:
    """Parts of the step before they overlap, and the correction of their sum."""
    of = found.physical
    whole = f"of {duration(of.communication_s)}" if of.communication_s else ""
    parts = [
        ("compute, tensor cores", of.tensor_core_s, percent(of.tensor_core_share)),
        ("compute, other", of.compute_s - of.tensor_core_s, ""),
        ("host (launches)", of.host_s, ""),
        ("exposed communication", of.exposed_s, whole),
        ("optimizer", of.optimizer_s, ""),
        *([("pipeline bubble", of.bubble_s, "")] if of.bubble_s else []),
        *([("waiting for the slowest", of.waiting_s, "")] if of.waiting_s else []),
        ("step from tables", of.step_s, ""),
    ]
    yield "parts of one step, from tables (compute and host overlap)"
    for name, seconds, note in parts:
        yield _line(f"{GAP}{name}", duration(seconds) if seconds else "0", note)
    learned = found.correction / found.unstated
    yield _line(f"{GAP}correction", f"x {learned:.3f}", "learned from measured runs")
    if found.unstated != 1:
        those = " and ".join(one.field for one in found.assumptions if one.centre)
        yield _line(f"{GAP}which {those}", f"x {found.unstated:.3f}", "mean of what it could be")


def _line(name: str, value: str, note: str = "") -> str:
    return f"{name:<{LABEL_WIDTH}}{value:<16}{GAP}{note}".rstrip()
