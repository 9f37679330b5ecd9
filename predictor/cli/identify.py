"""`precision-time identify`: what job a script or a command line is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..identify.files import user_files
from ..job.phases import lasting
from .console import format_option, show_json, show_table, warn

if TYPE_CHECKING:
    from ..identify.stated import Stated

# What a time is predicted from; one of each is enough.
NEEDED = (("model",), ("precision",), ("batch_size", "global_batch_size"), ("steps", "epochs"))
MOST_READ = 64 * 1024
ONE_PROCESS = "one process, which nothing starts for each GPU: of several GPUs one works"
SCRIPT_ENDS = (".sh", ".bash", ".sbatch", ".slurm", ".job")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="SCRIPT|COMMAND [ARGUMENT]...")
@click.option("--comment", help="What --comment of the submission says, such as 'batch=64'.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable. Repeatable."
)
@format_option
def identify(
    words: tuple[str, ...], comment: str | None, variables: tuple[str, ...], form: str
) -> None:
    """Show which training job a shell script or a command line is; nothing is run.

    A file that starts with #! is read as a script, with the words behind it as its arguments;
    any other words are the command itself. Put -- before them. Configuration files that it names
    are read, relative to the working directory.
    """
    from ..identify.identify import identify as read
    from ..identify.identify import sbatch_options

    environment = {"HOME": str(Path.home())}
    for text in variables:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
        environment[name] = value
    script = script_text(words)
    stated = read(
        comment=comment or sbatch_options(script or "").get("comment"),
        environment=environment,
        script=script,
        argv=words,
        files=user_files(Path.cwd()),
    )
    if form == "json":
        show_json(summary(stated))
        return
    show_stated(stated)


def script_text(words: Sequence[str]) -> str | None:
    """The text of a shell script, None where words are a command; a name of one must exist."""
    word, path = words[0], Path(words[0])
    if path.suffix in (".yaml", ".yml"):
        why = "precision-time k8s identify reads manifests"
        raise click.BadParameter(f"{word!r} is no script; {why}", param_hint="SCRIPT")
    alone = len(words) == 1 and ("/" in word or path.suffix == ".txt")
    if path.is_dir() or ((path.suffix in SCRIPT_ENDS or alone) and not path.exists()):
        raise click.BadParameter(f"there is no file {word}", param_hint="SCRIPT")
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(MOST_READ)
    first = start.partition(b"\n")[0]
    if first.startswith(b"#!") and b"sh" in first:
        return start.decode(errors="replace")
    if path.suffix in SCRIPT_ENDS or not os.access(path, os.X_OK):
        warn(f"{word} does not start with #! and a shell: it is taken for a command")
    return None


def missing(stated: Stated) -> list[str]:
    """What a time cannot be predicted without, of what is not stated."""
    found = set(stated.values) | ({"steps"} if lasting(stated.values.get("phases", ())) else set())
    if stated.trainer:
        found.add("precision")
    return [" or ".join(names) for names in NEEDED if not found & set(names)]


def unclear_line(stated: Stated) -> str:
    """Words of a script of which nobody knows what they take, and what is made of them."""
    names = ", ".join(stated.unclear)
    return f"what {names} may add to the time: nothing is added, and no limit set" if names else ""


def summary(stated: Stated) -> dict[str, Any]:
    """What is stated, with origins, and what lacks, for JSON."""
    from ..identify.grammar import value_text

    return {
        "fields": {
            name: {"value": value_text(value), "from": stated.origins[name]}
            for name, value in sorted(stated.values.items())
        },
        "assumed": {"precision": f"the default of {stated.trainer}"} if stated.trainer else {},
        "unknown_model": stated.unknown_model,
        "missing": missing(stated),
        "unclear": stated.unclear,
        "doubts": [problem.text for problem in stated.doubts],
        "problems": [p.text for p in stated.problems if p not in stated.doubts],
    }


def show_stated(stated: Stated) -> None:
    """Print what is stated, and what lacks."""
    told = summary(stated)
    fields = told["fields"]
    if fields:
        rows = [(name, one["value"], one["from"]) for name, one in fields.items()]
        show_table(("field", "value", "from"), rows, left=3)
    else:
        click.echo("nothing is read of a training job")
    for name, why in told["assumed"].items():
        click.echo(f"{name} is not stated: {why} is assumed")
    if stated.alone:
        click.echo(ONE_PROCESS)
    if fields and told["missing"]:
        click.echo(f"missing: {', '.join(told['missing'])}")
    if line := unclear_line(stated):
        click.echo(f"not known: {line}")
    for text in told["doubts"]:
        click.echo(f"keeps it from a prediction: {text}")
    for text in told["problems"]:
        warn(text)
