"""`precision-time validate`: cross-validation on the shipped measurements."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import JobError
from ..units import percent
from .console import format_option, progress, show_json, show_table
from .predictors import refit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..evaluation.scores import Figure, IntervalCoverage

ALL = "all"
STAGES = 11  # that a validation tells of


@click.command()
@click.option(
    "--protocol",
    default=ALL,
    show_default=True,
    metavar="all|NAME",
    help="Show only protocols whose name starts like this.",
)
@click.option("--no-write", is_flag=True, help="Leave accuracy.md and the plots as they are.")
@click.option(
    "--docs",
    type=click.Path(file_okay=False, path_type=Path),
    default="docs/explanation",
    show_default=True,
    help="Folder of accuracy.md and the plots.",
)
@format_option
def validate(protocol: str, no_write: bool, docs: Path, form: str) -> None:
    """Cross-validate on the shipped measurements, from the easiest protocol to the hardest.

    Every figure is out of sample. Writes accuracy.md and plots unless told otherwise.
    """
    from ..evaluation.protocols import validate as run

    fitted, numbers = refit(), count()
    with progress("validating") as bar:
        validation = run(fitted, lambda stage: bar(stage, next(numbers) / STAGES))
    figures = selected(validation.figures, protocol)
    if form == "json":
        show_json(
            {
                "figures": [_plain(f) for f in figures],
                "coverages": [_plain(c) for c in validation.coverages],
            }
        )
    else:
        _show(figures, validation.coverages if protocol == ALL else ())
    if no_write:
        return
    from ..evaluation.report import write

    try:
        written = write(validation, docs)
    except OSError as error:
        raise JobError("docs", str(docs), f"cannot be written: {error.strerror}") from error
    click.echo(f"wrote {', '.join(map(str, written))}", err=True)


def selected(figures: Sequence[Figure], protocol: str) -> list[Figure]:
    """Figures of protocols that start with a name; raises JobError where there is none."""
    found = [f for f in figures if protocol == ALL or f.protocol.startswith(protocol)]
    if not found:
        names = "; ".join(dict.fromkeys(f.protocol for f in figures))
        raise JobError("protocol", protocol, f"a start of one of: {names}")
    return found


def _show(figures: Sequence[Figure], coverages: Sequence[IntervalCoverage]) -> None:
    rows = [
        (f.protocol, f.method, *map(percent, (f.mean, f.median, f.p90)), str(f.n)) for f in figures
    ]
    show_table(("protocol", "method", "mean", "median", "p90", "n"), rows, left=2)
    if coverages:
        click.echo()
        rows = [
            (c.scope, *map(percent, (c.level, c.coverage, c.half_width)), str(c.n))
            for c in coverages
        ]
        show_table(("novelty", "interval", "inside", "half width", "n"), rows)


def _plain(row: Figure | IntervalCoverage) -> dict[str, object]:
    """Its fields; None for NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in asdict(row).items()}
