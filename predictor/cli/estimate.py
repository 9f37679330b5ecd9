"""`precision-time estimate`: how long a job will run here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from getpass import getuser
from math import inf
from typing import TYPE_CHECKING, Any

import click

from profiles.gpus import known_gpu

from ..identify.files import user_files
from ..site.history.cells import MIB, asked_gpus, gpu_type, limit_s, memory_bytes, whole
from ..site.similar import request
from ..units import GIB, MINUTE_S, count, duration, span
from .console import format_option, show_json, warn
from .identify import ONE_PROCESS, missing, script_text, unclear_line
from .options import complete, listed_options, predictor

if TYPE_CHECKING:
    from ..estimate.prediction import Prediction
    from ..identify.stated import Stated
    from ..site.similar.estimate import Estimate

# What clusters have, from the slowest on: a job that states no GPU type may get any of them.
LIKELY_GPUS = ("v100-sxm2-32gb", "a100-sxm4-80gb", "h100-sxm5-80gb")
NO_SHEET = "{} stays what it is called here: physics has no data sheet of such a GPU (`gpus`)"
NO_START_UP = "start-up, validation and checkpoints take no time: no job told yet what they take"
ONE_GPU = "1 GPU is taken: neither --gpus nor #SBATCH nor a launcher says how many"
LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
# Runs of the same script from which on their spread is the job's own.
ENOUGH_RUNS = 8


def _seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    found = None if text is None else limit_s(text, MINUTE_S)
    if text is not None and found is None:
        raise click.BadParameter(
            f"invalid {text!r}; expected [DAYS-]HOURS:MINUTES:SECONDS, DAYS-HOURS or minutes"
        )
    return found


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="SCRIPT|COMMAND [ARGUMENT]...")
@listed_options("request")
@click.option("--gpu", "gpu_type", help="The GPU type.", shell_complete=complete("gpu"))
@click.option(
    "--limit", "limit_s", callback=_seconds, metavar="TIME", help="Limit: 4:30:00, 90 (minutes)."
)
@listed_options("submission")
@format_option
def estimate(words: tuple[str, ...], comment: str | None, form: str, **asked: Any) -> None:
    """Estimate how long a job will run at this site, from similar runs and physics.

    `precision-time calibrate` learns the runs from the history. A file that starts with #! is read
    as a script, whose #SBATCH lines count where no option says otherwise; any other words are the
    command itself. Every job gets an answer: the less is known of it, the wider.
    """
    from ..site.calibration.site_state import read_state
    from ..site.similar.estimate import PhysicsView, carried_limit_s, estimate_job

    job, stated, assumed = _request(words, comment, asked)
    for problem in stated.problems:
        warn(problem.text)
    memory = read_state().memory
    physics = PhysicsView(predictor(), gpus=LIKELY_GPUS) if stated.model else None
    found = estimate_job(job, memory, physics)
    prediction = None if physics is None else physics.prediction(job)
    if prediction is not None and found.physics:
        unlearned = () if memory.errors.physics else (NO_START_UP,)
        assumed += (*map(str, prediction.assumptions), *unlearned)
    told = (*found.assumptions, *assumed)
    carried_s = carried_limit_s(job, memory, 0.95)
    if form != "json":
        refusal = "" if physics is None or prediction else physics.refusal(job)
        narrowing = _narrowing(found, prediction, stated, refusal)
        _show(found, _why_wide(found, prediction), narrowing, told)
        return
    show_json(
        {
            "expected_s": found.expected_s,
            "mean_s": found.mean_s,
            "quantiles_s": {str(level): found.quantile_s(level) for level in LEVELS},
            "limit_s": found.limit_s,
            "carried_limit_s": carried_s and found.covering_s(carried_s),
            "similar_runs": found.runs,
            "evidence": list(found.evidence),
            "assumptions": list(told),
        }
    )


def _request(
    words: tuple[str, ...], comment: str | None, given: dict[str, Any]
) -> tuple[request.JobRequest, Stated, tuple[str, ...]]:
    """The job, what it states of its training, and what is assumed of it."""
    from ..identify.grammar import stated_text
    from ..identify.identify import identify, sbatch_options

    directory, memory_gib = given.pop("directory").resolve(), given.pop("memory_gib")
    script = script_text(words)
    options = sbatch_options(script or "")
    files, said = user_files(directory), comment or options.get("comment")
    home = {"HOME": str(directory.home())}
    stated = identify(comment=said, environment=home, script=script, argv=words, files=files)
    asked: dict[str, Any] = {"user": getuser()} | _asked_in(options)
    asked |= {name: value for name, value in given.items() if value is not None}
    if memory_gib is not None:
        asked["memory_bytes"] = round(memory_gib * GIB)
    if "gpus" not in asked and stated.started:
        asked["gpus"] = stated.started
    kinds = {kind for kind in options.get("constraint", "").split("&") if known_gpu(kind)}
    if len(kinds) == 1:
        asked.setdefault("gpu_type", kinds.pop())
    no_sheet = ""
    if kind := asked.get("gpu_type"):
        asked["gpu_type"] = gpu_type(kind)
        no_sheet = NO_SHEET.format(kind) * (known_gpu(kind) is None)
        stated = replace(stated, values=dict(stated.values) | {"gpu": kind})
    one = ONE_GPU if "gpus" not in asked else ONE_PROCESS * (stated.alone and asked["gpus"] > 1)
    least, several, _ = options.get("nodes", "").partition("-")
    each = asked.get("gpus", 1) // int(least) if least.isdigit() and int(least) else None
    misfit = stated.misfit(asked.get("gpus", 1), each)
    nodes = f"of --nodes {options['nodes']}, {least} are taken" if several else ""
    assumed = filter(None, (one, misfit, nodes, no_sheet, stated.model and unclear_line(stated)))
    job = request.JobRequest(
        script=request.script_signature(" ".join(words) if script is None else script),
        command=request.command_signature(" ".join(words), str(directory)),
        directory=str(directory),
        **request.stated_fields(stated_text(stated)),
        **{"gpus": 1, **asked},
    )
    return job, stated, tuple(assumed)


def _asked_in(options: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a request that the options of sbatch state; counts are of the whole job."""

    def number(name: str) -> int | None:
        return whole(options.get(name, ""))

    nodes = whole(options.get("nodes", "").partition("-")[0]) or 1  # of 2-4 the least
    tasks = number("ntasks") or nodes * (number("ntasks-per-node") or 1)
    of_one = {"gpus": 1, "gpus-per-node": nodes, "gres": nodes, "gpus-per-task": tasks}
    per_task, per_gpu = number("cpus-per-task"), number("cpus-per-gpu")
    found: dict[str, Any] = {
        "account": options.get("account"),
        "name": options.get("job-name"),
        "partition": options.get("partition"),
        "limit_s": limit_s(options.get("time", ""), MINUTE_S),
    }
    for name, times in of_one.items():
        text = options.get(name, "")
        asked = asked_gpus(text if name == "gres" or text.isdecimal() else f"gpu:{text}")
        if text and asked is not None and asked.count:
            found["gpus"] = asked.count * times
            found["gpu_type"] = asked.type
            break
    gpus = found.get("gpus", 1)
    found["cpus"] = per_task * tasks if per_task else per_gpu * gpus if per_gpu else None
    per = {"mem": nodes, "mem-per-cpu": found["cpus"] or tasks, "mem-per-gpu": gpus}
    for name, times in per.items():
        memory = memory_bytes(options.get(name, ""), MIB, None, 1)
        if memory is not None:
            found["memory_bytes"] = memory * times
    return {name: value for name, value in found.items() if value is not None}


def _show(found: Estimate, why: str, narrowing: str, told: tuple[str, ...]) -> None:
    if found.similar or found.physics:
        longest_s = found.limit_s or inf  # it may outlive its limit by the grace of the site
        low, least, middle, most, high = (
            min(found.quantile_s(level), longest_s) for level in (0.025, 0.25, 0.5, 0.75, 0.975)
        )
        ends = f"(50 %: {span(least, most)}; 95 %: {span(low, high)})"
        click.echo(f"expected  {duration(middle)} {ends}")
        click.echo(f"mean      {duration(min(found.mean_s, longest_s))}")
        if found.limit_s and found.expected_s >= found.limit_s:
            click.echo(f"limit     {duration(found.limit_s)}: more likely than not it ends the job")
    else:
        anything = f"within {span(found.quantile_s(0.05), found.quantile_s(0.95))}"
        if found.limit_s:
            anything = f"up to the limit of {duration(found.limit_s)}"
        click.echo(f"expected  not known yet: anything {anything}")
    click.echo(f"why so wide: {why}")
    if narrowing:
        click.echo(f"narrower by: {narrowing}")
    for head, lines in (("because", found.evidence), ("assumed", told)):
        for line in lines:
            click.echo(f"{head:<9} {line}")


def _why_wide(found: Estimate, prediction: Prediction | None) -> str:
    from ..estimate.prediction import why_wide

    if prediction is not None and found.physics:
        return why_wide(prediction)
    if not found.similar:
        return "nothing is known of such jobs here" + (" but the limit" if found.limit_s else "")
    first = found.similar[0]
    if first.seen < ENOUGH_RUNS:
        few, are = ("one run", "is") if first.seen == 1 else (f"{first.seen} runs", "are")
        return f"only {few} {first.similarity.words} {are} known"
    return f"{count(first.seen)} runs {first.similarity.words} say most, and they differ"


def _narrowing(found: Estimate, prediction: Prediction | None, stated: Stated, refusal: str) -> str:
    """The one thing that would tell most; ``refusal`` is why physics says nothing."""
    from ..estimate.prediction import narrowing

    own = sum(one.seen for one in found.similar if one.similarity in request.BY_SCRIPT)
    if prediction is not None and found.physics and not own:
        return narrowing(prediction)
    lacking = missing(stated) if stated.model else []
    if lacking and not own:
        return f"state {', '.join(lacking)}: physics speaks then"
    if stated.doubts and not own:
        return stated.doubts[0].text
    if own >= ENOUGH_RUNS:
        return ""
    if refusal and not own:
        return f"a job that physics can price: {refusal}"
    return "a run of this script here; past jobs are learned by precision-time history ingest"
