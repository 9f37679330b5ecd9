"""`precision-time compare`: one job on several GPUs at several precisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .console import format_option, show_json, warn
from .options import job_of, job_options
from .predictors import predictor

if TYPE_CHECKING:
    from ..core import Predictor
    from ..job import TrainingJob
    from ..prediction import Prediction

GPUS = ("v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb")
PRECISIONS = ("fp32", "tf32", "mixed_fp16_fp32", "mixed_bf16_fp32")
BASE = "fp32"


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
@click.argument("model")
@click.option("--gpu", "gpus_", multiple=True, help=f"GPU; repeatable  [default: {', '.join(GPUS)}]")
@click.option(
    "--precision", "precisions", multiple=True,
    help=f"Precision; repeatable  [default: {', '.join(PRECISIONS)}]",
)  # fmt: skip
@job_options
@click.option("--version", "version", help="Stored predictor to use  [default: the one in use]")
@format_option
def compare(
    model: str,
    gpus_: Sequence[str],
    precisions: Sequence[str],
    version: str | None,
    form: str,
    **fields: Any,
) -> None:
    """Compare GPUs and precisions for a training job of MODEL.

    Shows the time of the whole job where --steps or --epochs is given, else that of one step.
    Formats for which a GPU has no fast units are left out.
    """
    jobs = [
        job_of(model, precision, gpu, fields)
        for gpu in dict.fromkeys(gpus_ or GPUS)
        for precision in dict.fromkeys(precisions or PRECISIONS)
        if _fast(precision, gpu)
    ]
    left_out = [
        f"{precision} on {gpu}"
        for gpu in dict.fromkeys(gpus_ or GPUS)
        for precision in dict.fromkeys(precisions or PRECISIONS)
        if not _fast(precision, gpu)
    ]
    lines = compared(predictor(version), jobs)
    if form == "json":
        show_json(
            {"model": model, "lines": [line.as_dict() for line in lines], "left_out": left_out}
        )
        return
    _show(lines)
    if left_out:
        click.echo(f"\nleft out, for want of tensor cores: {', '.join(left_out)}")
    for warning in dict.fromkeys(w for line in lines for w in line.found.warnings):
        warn(warning)


def compared(model: Predictor, jobs: Sequence[TrainingJob]) -> list[Line]:
    """Every job predicted, with its speed-ups; FP32 is predicted too where it was not asked for."""
    from ..precision import Precision

    plain = [job.but(precision=Precision(BASE)) for job in jobs]
    found = model.predict_many([*jobs, *plain])
    asked, bases = found[: len(jobs)], found[len(jobs) :]
    slowest_s = max((p.step_s for p in asked), default=0.0)
    return [
        Line(p, base.step_s / p.step_s, slowest_s / p.step_s)
        for p, base in zip(asked, bases, strict=True)
    ]
