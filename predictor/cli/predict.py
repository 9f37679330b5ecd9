"""`precision-time predict`: the time of one training job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..units import count, duration, gibibytes, percent, short, span
from .console import GAP, format_option, show_json, warn
from .options import job_of, job_options
from .predictors import predictor

if TYPE_CHECKING:
    from ..prediction import Prediction

LABEL_WIDTH = 26


@click.command()
@click.argument("model")
@click.option("--gpu", required=True, help="GPU: name, product or alias, such as a100-sxm4-80gb.")
@click.option(
    "--precision", required=True,
    help="fp32, tf32, fp16, bf16, mixed_fp16_fp32, mixed_bf16_fp32, mixed_fp8_bf16, or amp ...",
)  # fmt: skip
@job_options
@click.option("--version", "version", help="Stored predictor to use  [default: the one in use]")
@format_option
def predict(
    model: str, gpu: str, precision: str, version: str | None, form: str, **fields: Any
) -> None:
    """Predict how long a training job of MODEL takes.

    MODEL is a name of `precision-time catalog list`. Times are those of one optimizer step, and of
    the whole job where --steps or --epochs is given.
    """
    job = job_of(model, precision, gpu, fields)
    found = predictor(version).predict(job)
    if form == "json":
        show_json(found.as_dict())
        return
    for line in text(found):
        click.echo(line)
    for warning in found.warnings:
        warn(warning)


def text(found: Prediction) -> Iterator[str]:
    """The lines of a prediction for people."""
    job, step = found.job, found.interval()
    nodes = f"{job.nodes} node" + ("s" if job.nodes > 1 else "")
    yield f"{job.model}, {job.precision.value}, {job.gpus} x {job.gpu} ({nodes})"
    yield f"batch {job.micro_batch_size} per GPU, {count(job.step_samples)} samples per step"
    yield ""
    yield _line("step", duration(found.step_s), f"95 %: {span(step.low_s, step.high_s)}")
    yield _line("throughput", f"{short(found.throughput)} samples/s")
    if found.steps is not None:
        low, high = step.low_s * found.steps, step.high_s * found.steps
        yield _line("total", duration(found.total_s), f"95 %: {span(low, high)}")
        hours = (t * job.gpus / 3600 for t in (found.step_s * found.steps, low, high))
        middle, least, most = map(short, hours)
        yield _line("GPU-hours", middle, f"95 %: {least} .. {most}")
        yield _line("steps", count(found.steps))
    yield ""
    yield from _parts(found)
    yield ""
    yield from memory(found)
    yield ""
    yield "evidence"
    yield from (f"{GAP}{line}" for line in found.evidence)


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
    physical = found.physical
    other_s = physical.compute_s - physical.tensor_core_s
    hidden = f"of {duration(physical.communication_s)}"
    yield "parts of one step, from tables (compute and host overlap)"
    yield _part(
        "compute, tensor cores", physical.tensor_core_s, percent(physical.tensor_core_share)
    )
    yield _part("compute, other", other_s)
    yield _part("host (launches)", physical.host_s)
    yield _part("exposed communication", physical.exposed_s, hidden)
    yield _part("optimizer", physical.optimizer_s)
    if physical.bubble:
        yield _line(f"{GAP}pipeline bubble", percent(physical.bubble), "of compute and host")
    yield _part("step from tables", physical.step_s)
    yield _line(f"{GAP}correction", f"x {found.correction:.3f}", "learned from measured runs")


def _part(name: str, seconds: float, note: str = "") -> str:
    return _line(f"{GAP}{name}", duration(seconds) if seconds else "0", note)


def _line(name: str, value: str, note: str = "") -> str:
    return f"{name:<{LABEL_WIDTH}}{value:<18}{note}".rstrip()
