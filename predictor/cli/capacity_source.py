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

from ..errors import HistoryError, PrecisionTimeError, ReportError
from ..optional import needs
from .console import format_option, warn
from .filling import history_option, open_history
from .groups import load_plugin, plugin_points
from .options import MOMENT, pools_of

if TYPE_CHECKING:
    from ..planning.cost import Terms
    from ..site.capacity.live import Live
    from ..site.capacity.measured import JobUse
    from ..site.capacity.report_data import ReportPeriod
    from ..site.capacity.source import JobSource
    from ..site.replay import Pool

DAY_S = 86400.0
SINCE_DAYS = 30
INGEST, QUEUE = "precision_time.ingest", "precision_time.queue"
# How long before the period jobs are read from a scheduler: the weeks that a forecast is made from.
BEFORE_S = 26 * 7 * DAY_S
HISTORY, HERE = "history", "here"

_FROM = click.option(
    "--from",
    "source",
    default=HISTORY,
    show_default=True,
    metavar="history|slurm|kubernetes|FILE",
    help="Jobs: of the history, read from a scheduler now, or of a CSV or Parquet file.",
)
_QUEUE = click.option(
    "--queue",
    metavar="slurm|kubernetes",
    help="Add what runs and waits in this scheduler now, and the GPUs it has.",
)
measured_option = click.option(
    "--measured",
    metavar="URL|FILE",
    help="What GPUs really did: a Prometheus with the DCGM exporter, or sacct -X -P -o "
    "JobID,AdminComment with jobstats.",
)
_QUEUE_FROM = click.option(
    "--from",
    "source",
    default=HERE,
    metavar="slurm|kubernetes|history|FILE",
    help="Jobs: of a scheduler, of the history or of a CSV or Parquet file.  "
    "[default: the scheduler that answers here]",
)
_OPTIONS = (
    click.option("--since", type=MOMENT, help="Begin of the period  [default: 30d]"),
    click.option("--until", type=MOMENT, help="End of the period  [default: now]"),
    click.option(
        "--gpus",
        "pools",
        multiple=True,
        callback=pools_of,
        metavar="TYPE:GPUS[/PER_NODE]",
        help="GPUs there are; repeatable  [default: the most ever in use at once]",
    ),
    click.option(
        "--prices",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Your price file, also with grid factor and PUE: docs/how-to/cost.md.",
    ),
    click.option("--partition", help="Partition or site of the price file."),
    click.option("--version", help="Stored predictor to use  [default: the one in use]"),
    click.option(
        "--configurations",
        type=click.IntRange(1),
        default=300,
        show_default=True,
        help="Distinct configurations to predict, those with the most GPU-hours first.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """The values of ``capacity_options``."""

    source: str
    queue: str | None = None
    measured: str | None = None
    history: str | None
    since: float | None
    until: float | None
    pools: tuple[Pool, ...]
    prices: Path | None
    partition: str | None
    version: str | None
    configurations: int

    @property
    def period(self) -> ReportPeriod:
        """The period; raises HistoryError for one that ends before it begins."""
        from ..site.capacity.report_data import ReportPeriod

        until_s = time.time() if self.until is None else self.until
        since_s = until_s - SINCE_DAYS * DAY_S if self.since is None else self.since
        if since_s >= until_s:
            raise HistoryError("the period ends before it begins: --since has to be before --until")
        return ReportPeriod(since_s=since_s, until_s=until_s)

    @property
    def uses(self) -> list[JobUse]:
        """What was measured of jobs; raises HistoryError where it cannot be read."""
        from ..site.capacity.measured import read_measured

        return [] if self.measured is None else read_measured(self.measured, self.period)

    @property
    def terms(self) -> Terms:
        """Prices, grid and overhead."""
        from ..planning.cost import Terms, read_tariff

        if self.prices is None:
            return Terms()
        return Terms(read_tariff(self.prices, self.partition))


def capacity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that Asked is made of, and ``--format``."""
    for option in reversed((_FROM, _QUEUE, *_OPTIONS)):
        command = option(command)
    return history_option(format_option(command))


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that is about a queue."""
    for option in reversed((_QUEUE_FROM, *_OPTIONS)):
        command = option(command)
    return history_option(format_option(command))


@contextmanager
def opened(asked: CapacityRequest) -> Iterator[JobSource]:
    """The jobs, open while the block runs; raises HistoryError, and NotInstalledError."""
    with _ended(asked) as source:
        yield source if asked.queue is None else _with_queue(source, asked.queue)


@contextmanager
def opened_queue(asked: CapacityRequest) -> Iterator[JobSource]:
    """The queue of a scheduler with the jobs of the history, where there is one; else as opened."""
    if asked.source != HERE and asked.source not in plugin_points(QUEUE):
        with opened(asked) as source:
            yield source
        return
    from ..site.capacity.source import with_live

    live = queue_here() if asked.source == HERE else read_queue(asked.source)
    with _past(asked.history, live.scheduler) as source:
        yield with_live(source, live)


@contextmanager
def _ended(asked: CapacityRequest) -> Iterator[JobSource]:
    from ..site.capacity.source import of_file, of_history

    if asked.source in plugin_points(INGEST):
        with _read_now(asked) as source:
            yield source
    elif asked.source == HISTORY:
        with open_history(asked.history, create=False) as store:
            yield of_history(store)
    else:
        path = Path(asked.source)
        if not path.suffix:
            names = ", ".join([HISTORY, *plugin_points(INGEST)])
            raise HistoryError(
                f"invalid from={asked.source!r}; expected {names} or a CSV or Parquet file; "
                "a scheduler is among them once its adapter is installed"
            )
        yield of_file(path)


def _with_queue(source: JobSource, name: str) -> JobSource:
    """A report of the past is worth having without the queue of now."""
    from ..site.capacity.source import with_live

    if name not in plugin_points(QUEUE):
        names = ", ".join(plugin_points(QUEUE)) or "none: no adapter is installed"
        raise HistoryError(f"invalid queue={name!r}; expected one of {names}")
    try:
        return with_live(source, read_queue(name))
    except PrecisionTimeError as error:
        warn(f"the report has no queue: {error}")
        return source


@contextmanager
def _past(history: str | None, scheduler: str) -> Iterator[JobSource]:
    """The history, or no jobs where none was named and there is none."""
    from ..site.capacity.source import JobSource, empty, of_history

    try:
        store = open_history(history, create=False)
    except HistoryError:
        if history is not None:
            raise
        yield JobSource(frame=empty(), kind=scheduler, name=scheduler)
        return
    with store:
        yield of_history(store)


@contextmanager
def _read_now(asked: CapacityRequest) -> Iterator[JobSource]:
    """What a scheduler tells, in a history that is gone afterwards, and its queue."""
    from ..site.capacity.source import of_history, with_live

    name = asked.source
    live = read_queue(name) if name in plugin_points(QUEUE) else None
    with TemporaryDirectory(prefix="precision-time-") as folder:
        path = str(Path(folder) / "history.sqlite")
        since = datetime.fromtimestamp(asked.period.since_s - BEFORE_S, UTC).isoformat()
        _ingest(name, "--history", path, "--since", since)
        with open_history(path, create=False) as store:
            source = of_history(store, scheduler=name)
            yield source if live is None else with_live(source, live)


def _ingest(name: str, *words: str) -> None:
    with needs(name), redirect_stdout(sys.stderr):
        load_plugin(plugin_points(INGEST)[name]).main(list(words), standalone_mode=False)


def read_queue(name: str) -> Live:
    """The queue of one scheduler; raises what its adapter raises where that does not answer."""
    with needs(name):
        found: Live = load_plugin(plugin_points(QUEUE)[name])()
    return found


def queue_here() -> Live:
    """The queue of the first scheduler that answers; raises ReportError where none does."""
    reasons = []
    for name in plugin_points(QUEUE):
        try:
            return read_queue(name)
        except PrecisionTimeError as error:
            reasons.append(f"{name}: {error}")
    raise ReportError(
        f"no scheduler answers here ({'; '.join(reasons) or 'no adapter is installed'}): "
        "--from history and --from FILE need none"
    )
