"""What commands print: results to stdout; progress, warnings and errors to stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from threading import Event
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


Progress = Callable[[str, float], None]

GAP = "  "
# Adds ``--format text|json`` as the argument ``form``.
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)


@dataclass(frozen=True, slots=True)
class CheckedPromise:
    """One promise of a `check`; ``detail`` says what was seen, or why not and what to do."""

    promise: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        """The line an admin reads."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{'ok' if self.holds else 'FAILED':<8}{self.promise}{detail}"


def show_promises(promises: Iterable[CheckedPromise]) -> None:
    """A line a promise on stdout, each as soon as it is known; exit code 1 where one fails."""
    failed = 0
    for promise in promises:
        click.echo(str(promise))
        failed += not promise.holds
    if failed:
        click.get_current_context().exit(1)


def show_json(value: object, indent: int | None = 2) -> None:
    """One JSON value on stdout, never folded; with ``indent`` None on one line."""
    click.echo(json.dumps(value, indent=indent), file=getattr(sys.stdout, "whole", None))


def columns() -> int | None:
    """Columns of the terminal that stdout is, None where it is none: a file is never folded."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def show_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int | Collection[int] = 1,
    red: Collection[int] = (),
) -> None:
    """Aligned columns on stdout, the first ``left`` of them, or those places, to the left.

    What is wider than the terminal is folded inside its columns; where even that is too wide, a
    row becomes a block of lines. ``red`` are rows that say what cannot be.
    """
    lines = [tuple(head), *(tuple(row) for row in rows)]
    left = range(left) if isinstance(left, int) else left
    widths, gap = [max(map(len, column)) for column in zip(*lines, strict=True)], GAP
    room = columns()
    if room is not None and sum(widths) + len(GAP) * (len(widths) - 1) > room:
        gap = " "
        shrunk = _shrunk(lines, widths, room - len(widths) + 1)
        if shrunk is None:
            _show_blocks(head, rows, room)
            return
        widths = shrunk
    for number, line in enumerate(lines, -1):
        cells = [_folded(cell, width) for cell, width in zip(line, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = (
                part.ljust(width) if i in left else part.rjust(width)
                for i, (part, width) in enumerate(zip(parts, widths, strict=True))
            )
            text = gap.join(aligned).rstrip()
            click.echo(_coloured(text, "red") if number in red else text)


def _shrunk(lines: Sequence[Sequence[str]], widths: Sequence[int], room: int) -> list[int] | None:
    """Widths that fit, taken from the widest columns first; None where words are too long."""
    least = [
        max(len(part) for cell in column for part in _folded(cell, 1))
        for column in zip(*lines, strict=True)
    ]
    found = list(widths)
    while sum(found) > room:
        width, at = max((w, i) for i, w in enumerate(found) if w > least[i] or w == min(found))
        if width <= least[at]:
            return None
        found[at] -= 1
    return found


def _show_blocks(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> None:
    width = max(map(len, head))
    for row in rows:
        for name, cell in zip(head, row, strict=True):
            for i, part in enumerate(_folded(cell, room - width - len(GAP)) if cell else ()):
                click.echo(f"{'' if i else name:<{width}}{GAP}{part}")
        click.echo()


# A number and its unit, and the parts of a length of time, stay on one line.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:us|ms|s|min|h|%|[KMGTk]i?[BW]h?|x|\.\.)(?:\s|[,;)]|$))")
_PARTS = re.compile(r"(?<= h) (?=\d\d min)|(?<= min) (?=\d\d s)")
_BLANK = "\N{NO-BREAK SPACE}"


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of a width, which one word alone may exceed."""
    if len(text) <= width:
        return [text]
    kept = _TOGETHER.sub(_BLANK, _PARTS.sub(_BLANK, text))
    lines = wrap(kept, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines] or [""]


class _Folding:
    """A terminal as stdout: a line that is wider goes on below, under its last column.

    ``whole`` is the terminal itself.
    """

    def __init__(self, whole: TextIO, width: int) -> None:
        self.whole, self._width, self._begun = whole, width, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def write(self, text: str) -> int:
        """Write whole lines; what is begun waits for its end."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self.whole.write(self._fitting(line) + "\n")
        return len(text)

    def flush(self) -> None:
        """Write what is begun too."""
        self.whole.write(self._begun)
        self._begun = ""
        self.whole.flush()

    def _fitting(self, line: str) -> str:
        if len(click.unstyle(line)) <= self._width:
            return line
        starts = [m.end() for m in re.finditer(r"^ *|\S {2,}(?=\S)", line)]
        indent = max((n for n in starts if n <= 0.6 * self._width), default=0) or len(GAP)
        first, *rest = _folded(line, self._width)
        below = _folded(" ".join(rest), self._width - indent)
        return "\n".join((first, *(" " * indent + part for part in below)))


@contextmanager
def terminal() -> Iterator[None]:
    """Fold what is too wide for the terminal, and write what its encoding lacks as ``?``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")
    width = columns()
    if width is None:
        yield
        return
    with redirect_stdout(_Folding(sys.stdout, width)):
        yield
        sys.stdout.flush()


def show_rows(rows: Sequence[Mapping[str, str]], *, left: int | Collection[int] = 1) -> None:
    """The same of rows by the names of their columns; nothing where there are none."""
    if rows:
        show_table(tuple(rows[0]), [tuple(row.values()) for row in rows], left=left)


def worded(value: object) -> str:
    """A value of JSON as a cell of text, empty where there is nothing."""
    if isinstance(value, dict):
        value = [f"{k}={v}" for k, v in value.items()]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def warn(text: str) -> None:
    """One warning on stderr."""
    click.echo(f"{_coloured('warning:', 'yellow')} {' '.join(text.split())}", err=True)


def fail(text: str) -> None:
    """One error on stderr."""
    click.echo(f"{_coloured('error:', 'red')} {' '.join(text.split())}", err=True)


def _coloured(word: str, colour: str) -> str:
    """In colour on a terminal, unless the user wants none (no-color.org)."""
    return word if os.environ.get("NO_COLOR") else click.style(word, fg=colour)


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
    begun = False
    bar: Bar | None = None

    def show(stage: str, share: float) -> None:
        nonlocal begun, bar
        if not begun:
            begun = True
            if sys.stderr.isatty():
                bar = _started(title)
            else:
                click.echo(f"{title} ...", err=True)
        if bar is not None:
            bar.update(bar.task_ids[0], description=f"{title}: {stage}", completed=share)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


def _started(title: str) -> Bar:
    """A bar that disappears when it is stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(title, total=1.0)
    bar.start()
    return bar


@contextmanager
def stop_asked() -> Iterator[Event]:
    """Set by SIGTERM and SIGINT: what is under way is finished first."""
    stop = Event()
    wanted = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in wanted}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
