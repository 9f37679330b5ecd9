"""What commands print: results to stdout; progress, warnings and errors to stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Progress = Callable[[str, float], None]

FORMATS = ("text", "json")
GAP = "  "


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--format text|json`` as the argument ``form``."""
    add = click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="Output format.",
    )
    return add(command)


def show_json(value: object) -> None:
    """One JSON value on stdout."""
    click.echo(json.dumps(value, indent=2))


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | Collection[int] = 1
) -> None:
    """Aligned columns on stdout, the first ``left`` of them, or those places, to the left.

    What is wider than the terminal is folded inside its columns.
    """
    lines = [tuple(head), *(tuple(row) for row in rows)]
    left = range(left) if isinstance(left, int) else left
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    if sys.stdout.isatty() and sum(widths) + len(GAP) * len(widths) > get_terminal_size().columns:
        _show_folded(lines, left)
        return
    for line in lines:
        cells = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        click.echo(GAP.join(cells).rstrip())


def show_rows(rows: Sequence[Mapping[str, str]], *, left: int | Collection[int] = 1) -> None:
    """The same of rows by the names of their columns; nothing where there are none."""
    if rows:
        show_table(tuple(rows[0]), [tuple(row.values()) for row in rows], left=left)


def _show_folded(lines: Sequence[tuple[str, ...]], left: Collection[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="")
    for i, name in enumerate(lines[0]):
        table.add_column(Text(name), justify="left" if i in left else "right", overflow="fold")
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    Console(highlight=False).print(table)


def warn(text: str) -> None:
    """One warning on stderr."""
    click.echo(f"warning: {one_line(text)}", err=True)


def fail(text: str) -> None:
    """One error on stderr."""
    click.echo(f"error: {one_line(text)}", err=True)


def one_line(text: str) -> str:
    """The text without line breaks and repeated blanks."""
    return " ".join(text.split())


class WarningLog(logging.Handler):
    """Sends what the package logs to stderr, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        warn(record.getMessage())


@contextmanager
def logged() -> Iterator[None]:
    """Print what the package logs at the level of a warning or above while the block runs."""
    handler = WarningLog(logging.WARNING)
    logger = logging.getLogger("predictor")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A callback for stage and share done: a bar on a terminal, one line elsewhere.

    Nothing is shown before the first call, so work that turns out not to be needed is silent.
    """
    shown = _TerminalProgress(title) if sys.stderr.isatty() else _LineProgress(title)
    try:
        yield shown
    finally:
        shown.close()


class _LineProgress:
    """Says once what is going on."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._said = False

    def __call__(self, stage: str, share: float) -> None:
        if not self._said:
            click.echo(f"{self._title} ...", err=True)
            self._said = True

    def close(self) -> None:
        """Nothing to clear."""


class _TerminalProgress:
    """A bar that disappears when the work is done."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Bar | None = None

    def __call__(self, stage: str, share: float) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task(self._title, total=1.0)
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, description=f"{self._title}: {stage}", completed=share)

    def close(self) -> None:
        """Clear the bar."""
        if self._bar is not None:
            self._bar.stop()
