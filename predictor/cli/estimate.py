"""`precision-time estimate`: how long a job will run here, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import duration, span
from .console import format_option, show_json
from .identify import script_text
from .predictors import predictor

if TYPE_CHECKING:
    from ..site.similar.estimate import Estimate
    from ..site.similar.request import JobRequest

GIB = 2**30
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Days in front of hours, minutes and seconds, as schedulers write it; a bare number is minutes.
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)


def _seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"invalid {text!r}; expected [DAYS-]HOURS:MINUTES[:SECONDS]")
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[3] is None and match[1] is None:
        return first * 60.0
    return days * 86_400.0 + first * 3600.0 + second * 60.0 + third


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="SCRIPT|COMMAND [ARGUMENT]...")
@click.option("--user", default="", help="Who submits it.")
@click.option("--account", default="", help="The account it runs under.")
@click.option("--name", default="", help="Its name.")
@click.option("--partition", default="", help="The partition or queue.")
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, help="GPUs in all.")
@click.option("--gpu", default="", help="The GPU type.")
@click.option("--cpus", type=click.IntRange(1), help="CPUs in all.")
@click.option("--memory-gib", type=click.FloatRange(0), help="Memory in all.")
@click.option(
    "--limit", "limit_s", callback=_seconds, metavar="TIME", help="Limit: 1-12:00, 4:30:00."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where it is submitted  [default: the working directory]",
)
@click.option("--comment", help="What --comment of the submission says, such as 'batch=64'.")
@format_option
def estimate(words: tuple[str, ...], comment: str | None, form: str, **asked: Any) -> None:
    r"""Estimate how long a job will run at this site, from similar runs and physics.

    `precision-time calibrate` learns the runs from the history. A file that starts with #! is read
    as a script, any other words are the command itself. Every job gets an answer: the less is known
    of it, the wider.

    \b
    precision-time estimate job.sh --user ada --gpus 4
    precision-time estimate --user ada --limit 8:00:00 -- python train.py --epochs 90
    """
    from ..site.calibration.site_state import read_state
    from ..site.similar.estimate import carried_limit_s, estimate_job
    from ..site.similar.physics import PhysicsView

    job = _request(words, comment, asked)
    memory = read_state().memory
    physics = PhysicsView(predictor()) if "model=" in job.asked else None
    found = estimate_job(job, memory, physics)
    if form == "json":
        show_json(_plain(found, carried_limit_s(job, memory, 0.95)))
    else:
        _show(found)


def _request(words: tuple[str, ...], comment: str | None, asked: dict[str, Any]) -> JobRequest:
    from ..identify.files import UserFiles
    from ..identify.grammar import stated_text
    from ..identify.identify import identify
    from ..site.similar.request import JobRequest, stated_fields
    from ..site.similar.script import command_signature, script_signature

    directory, memory_gib = asked.pop("directory").resolve(), asked.pop("memory_gib")
    script = script_text(words[0])
    stated = identify(comment=comment, script=script, argv=words, files=UserFiles(directory))
    return JobRequest(
        gpu_type=asked.pop("gpu"),
        memory_bytes=None if memory_gib is None else round(memory_gib * GIB),
        script=script_signature(" ".join(words) if script is None else script),
        command=command_signature(" ".join(words), str(directory)),
        directory=str(directory),
        **stated_fields(stated_text(stated)),
        **asked,
    )


def _plain(found: Estimate, carried_s: float | None) -> dict[str, Any]:
    return {
        "expected_s": found.expected_s,
        "quantiles_s": {str(level): found.quantile_s(level) for level in LEVELS},
        "limit_s": found.limit_s,
        "carried_limit_s": carried_s,
        "similar_runs": found.runs,
        "evidence": list(found.evidence),
        "assumptions": list(found.assumptions),
    }


def _show(found: Estimate) -> None:
    low_s, half_s, high_s = (found.quantile_s(level) for level in (0.05, 0.5, 0.95))
    click.echo(f"expected  {duration(found.expected_s)}")
    click.echo(f"median    {duration(half_s)}, nine in ten {span(low_s, high_s)}")
    for head, lines in (("because", found.evidence), ("assumed", found.assumptions)):
        for line in lines:
            click.echo(f"{head:<9} {line}")
