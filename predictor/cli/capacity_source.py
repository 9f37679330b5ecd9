"""What the capacity commands are about: jobs of a history, a scheduler or a file, and GPUs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from ..errors import HistoryError, NotInstalledError
from .console import format_option
from .filling import history_option, open_history
from .moments import MOMENT
from .past_jobs import pools_of
from .plugins import declared, load

if TYPE_CHECKING:
    from ..capacity.report_data import Period
    from ..capacity.source import Source
    from ..cost import Terms
    from ..replay import Pool

DAY_S = 86400.0
SINCE_DAYS = 30
INGEST = "precision_time.ingest"
# How long before the period jobs are read from a scheduler: the weeks that a forecast is made from.
BEFORE_S = 26 * 7 * DAY_S
HISTORY = "history"

_OPTIONS = (
    click.option(
        "--from", "source", default=HISTORY, show_default=True,
        metavar="history|slurm|kubernetes|FILE",
        help="Jobs: of the history, read from a scheduler now, or of a CSV or Parquet file.",
    ),
    click.option("--since", type=MOMENT, help="Begin of the period  [default: 30d]"),
    click.option("--until", type=MOMENT, help="End of the period  [default: now]"),
    click.option(
        "--gpus", "pools", multiple=True, callback=pools_of, metavar="TYPE:GPUS[/PER_NODE]",
        help="GPUs there are; repeatable  [default: the most ever in use at once]",
    ),
    click.option(
        "--prices", type=click.Path(dir_okay=False, path_type=Path),
        help="Your price file, also with grid factor and PUE: docs/cost.md.",
    ),
    click.option("--partition", help="Partition or site of the price file."),
    click.option("--version", help="Stored predictor to use  [default: the one in use]"),
    click.option(
        "--configurations", type=click.IntRange(1), default=300, show_default=True,
        help="Distinct configurations to predict, those with the most GPU-hours first.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The values of ``capacity_options``."""

    source: str
    history: str | None
    since: float | None
    until: float | None
    pools: tuple[Pool, ...]
    prices: Path | None
    partition: str | None
    version: str | None
    configurations: int

    @property
    def period(self) -> Period:
        """The period; raises HistoryError for one that ends before it begins."""
        from ..capacity.report_data import Period

        until_s = time.time() if self.until is None else self.until
        since_s = until_s - SINCE_DAYS * DAY_S if self.since is None else self.since
        if since_s >= until_s:
            raise HistoryError("the period ends before it begins: --since has to be before --until")
        return Period(since_s=since_s, until_s=until_s)

    @property
    def terms(self) -> Terms:
        """Prices, grid and overhead."""
        from ..cost import Terms
        from ..prices import read_tariff

        if self.prices is None:
            return Terms()
        return Terms(read_tariff(self.prices, self.partition))


def capacity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that Asked is made of, and ``--format``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return history_option(format_option(command))


@contextmanager
def opened(asked: Asked) -> Iterator[Source]:
    """The jobs, open while the block runs; raises HistoryError, and NotInstalledError."""
    try:
        from ..capacity.source import of_file, of_history
    except ModuleNotFoundError as error:
        raise NotInstalledError.of(error, "report") from error
    if asked.source in declared(INGEST):
        with _read_now(asked) as source:
            yield source
    elif asked.source == HISTORY:
        with open_history(asked.history, create=False) as store:
            yield of_history(store)
    else:
        yield of_file(Path(asked.source))


@contextmanager
def _read_now(asked: Asked) -> Iterator[Source]:
    """What a scheduler tells, in a history that is gone afterwards."""
    from ..capacity.source import of_history

    command = load(INGEST, asked.source)
    assert command is not None
    with TemporaryDirectory(prefix="precision-time-") as folder:
        path = str(Path(folder) / "history.sqlite")
        since = datetime.fromtimestamp(asked.period.since_s - BEFORE_S, UTC).isoformat()
        with redirect_stdout(sys.stderr):
            command.main(["--history", path, "--since", since], standalone_mode=False)
        with open_history(path, create=False) as store:
            yield of_history(store, scheduler=asked.source)
