"""`precision-time history ingest`: ended jobs into the history, from a file or a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from .console import format_option
from .filling import filled, history_option, open_history, show
from .plugins import PluginGroup


@click.group(cls=PluginGroup, plugins="precision_time.ingest")
def ingest() -> None:
    """Add ended jobs to the history.

    What is there already is brought up to date, never doubled. Installed schedulers add a
    command each.
    """


@ingest.command()
@click.argument("file", type=click.Path(path_type=Path))
@history_option
@format_option
def csv(file: Path, history: str | None, form: str) -> None:
    """Add the measured runs of FILE, in the columns of `precision-time evaluate`.

    The columns submit_s, start_s and end_s (Unix seconds) may tell when a run was; without them
    it counts as ended when the file was written.
    """
    from .rows import read_rows

    rows = read_rows(file)
    with open_history(history) as store:
        from ..site.history.csv_rows import items

        found = items(rows, file.stat().st_mtime)
        show(filled(store, found, lambda tally: tally.records / len(rows)), store.url, form)
