"""`precision-time progress`: how far a training is, from what it prints."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import StepReportError
from ..units import MISSING, count, duration
from .console import format_option, show_json, stop_asked

if TYPE_CHECKING:
    from ..site.progress.reader import ProgressReading

EVERY_S = 10.0
_ROOT = 0
_PROGRAM = "from predictor.cli.main import main; main()"


@click.command()
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--follow", is_flag=True, help="Look again every 10 s; answers in JSON are lines.")
@format_option
def progress(file: Path, follow: bool, form: str) -> None:
    """Tell how far the training is that prints FILE, and how fast; - reads stdin.

    Reads the end of the file: tqdm, Trainer, Lightning, Keras, the formats of the known training
    programs, and others by their structure. What is no training has no rate. Root reads a user's
    file as that user, through setpriv.
    """
    from ..site.progress.reader import read_file, read_stream

    if str(file) == "-":
        if follow:
            raise click.UsageError("--follow needs a file")
        _show(read_stream(sys.stdin.buffer), form)
        return
    _as_owner(file)
    if not follow:
        _show(read_file(file), form)
        return
    before: ProgressReading | None = None
    with stop_asked() as stop:
        while not stop.is_set():
            with nullcontext() if before is None else suppress(StepReportError):  # rotated away
                if (found := read_file(file)) != before:
                    _show(found, form, indent=None)
                before = found
            stop.wait(EVERY_S)


def _as_owner(file: Path) -> None:
    """Root goes on as the owner of the file, in the place of this process."""
    if os.geteuid() != _ROOT:
        return
    try:
        status = file.lstat()
    except OSError as error:
        raise StepReportError(f"{file} cannot be read: {error.strerror}") from None
    if status.st_uid == _ROOT or not stat.S_ISREG(status.st_mode):
        return
    user = [f"--reuid={status.st_uid}", f"--regid={status.st_gid}", "--clear-groups"]
    words = ["setpriv", *user, "--no-new-privs", sys.executable, "-c", _PROGRAM, *sys.argv[1:]]
    try:
        os.execvp("setpriv", words)
    except OSError as error:
        raise StepReportError(
            f"{file} belongs to user {status.st_uid}, and setpriv cannot be run: {error.strerror}"
        ) from None


def _show(found: ProgressReading, form: str, indent: int | None = 2) -> None:
    if form == "json":
        show_json(asdict(found), indent)
        return
    if found.unit is None:
        click.echo("no progress of a training" if found.kind == "none" else f"{found.kind}")
        return
    at = MISSING if found.at is None else count(found.at)
    of = "" if found.total is None else f" of {count(found.total)}"
    lines = {
        "kind": str(found.kind),
        found.unit: f"{at}{of}",
        f"time a{'n' * (found.unit == 'epoch')} {found.unit}": duration(found.seconds_per_unit),
        "remaining": duration(found.remaining_s),
        "confidence": MISSING if found.confidence is None else f"{found.confidence:.2f}",
    }
    for name, value in lines.items():
        click.echo(f"{name:<16}{value}")
