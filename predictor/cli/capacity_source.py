"""What the capacity commands are about: jobs of a history, a scheduler or a file, and GPUs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ..errors import HistoryError, PrecisionTimeError, ReportError
from ..optional import needs
from .console import format_option, warn
from .filling import history_option, open_history
from .groups import load_plugin, plugin_points
from .options import listed_options, together

if TYPE_CHECKING:
    from ..planning.cost import Terms
    from ..site.capacity.jobs import JobSource
    from ..site.capacity.live import Live
    from ..site.capacity.whatif import ClusterChange
    from ..site.history.ingest import Period
    from ..site.replay import Pool

DAY_S = 86400.0
SINCE_DAYS = 30
INGEST, QUEUE = "precision_time.ingest", "precision_time.queue"
# How long before the period jobs are read from a scheduler: the weeks that a forecast is made from.
BEFORE_S = 26 * 7 * DAY_S
HISTORY, HERE = "history", "here"

_OPTIONS = tuple(map(listed_options, ("capacity", "prices", "configurations")))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """The values of ``capacity_options``, and of ``plan_options`` where a command has them."""

    source: str
    queue: str | None = None
    history: str | None
    since: float | None
    until: float | None
    pools: tuple[Pool, ...]
    prices: Path | None
    partition: str | None
    version: str | None
    configurations: int
    add: tuple[Pool, ...] = ()
    remove: tuple[Pool, ...] = ()
    to_precision: str | None = None

    @property
    def period(self) -> Period:
        """The period; raises HistoryError for one that ends before it begins."""
        from ..site.history.ingest import Period

        until_s = time.time() if self.until is None else self.until
        since_s = until_s - SINCE_DAYS * DAY_S if self.since is None else self.since
        if since_s >= until_s:
            raise HistoryError("the period ends before it begins: --since has to be before --until")
        return Period(since_s=since_s, until_s=until_s)

    @property
    def plan(self) -> ClusterChange | None:
        """The change to play; None for none."""
        from ..site.capacity.whatif import ClusterChange

        found = ClusterChange(add=self.add, remove=self.remove, mixed=self.to_precision is not None)
        return None if found == ClusterChange() else found

    @property
    def terms(self) -> Terms:
        """Prices, grid and overhead."""
        from ..planning.cost import Terms, read_tariff

        if self.prices is None:
            return Terms()
        return Terms(read_tariff(self.prices, self.partition))


# Adds the options that CapacityRequest is made of, and ``--format``.
capacity_options = together(history_option, format_option, listed_options("jobs"), *_OPTIONS)
# Adds ``--add``, ``--remove`` and ``--to-precision``.
plan_options = listed_options("change")
# ``capacity_options`` for a command that is about a queue.
queue_options = together(history_option, format_option, listed_options("queue-source"), *_OPTIONS)


@contextmanager
def opened(asked: CapacityRequest) -> Iterator[JobSource]:
    """The jobs, open while the block runs; raises HistoryError, and NotInstalledError."""
    from ..site.calibration.site_state import read_state
    from ..site.capacity.jobs import of_file, of_history, with_live

    name, live = asked.source, None
    with ExitStack() as stack:
        if name in plugin_points(INGEST):
            # The queue first: what ends while the past is read counts as running.
            live = _read_queue(name) if name in plugin_points(QUEUE) else None
            path = stack.enter_context(_ingested(name, asked.period.since_s - BEFORE_S))
            store = stack.enter_context(open_history(path, create=False))
            source = of_history(store, scheduler=name)
        elif name == HISTORY:
            source = of_history(stack.enter_context(open_history(asked.history, create=False)))
        elif Path(name).suffix:
            source = of_file(Path(name))
        else:
            names = ", ".join([HISTORY, *plugin_points(INGEST)])
            raise HistoryError(
                f"invalid from={name!r}; expected {names} or a CSV or Parquet file; "
                "a scheduler is among them once its adapter is installed"
            )
        if asked.queue is not None:
            if asked.queue not in plugin_points(QUEUE):
                names = ", ".join(plugin_points(QUEUE)) or "none: no adapter is installed"
                raise HistoryError(f"invalid queue={asked.queue!r}; expected one of {names}")
            try:
                live = _read_queue(asked.queue)
            except PrecisionTimeError as error:  # a report of the past is worth having without
                warn(f"the report has no queue: {error}")
        yield source if live is None else with_live(source, live, read_state().memory)


@contextmanager
def opened_queue(asked: CapacityRequest) -> Iterator[JobSource]:
    """The queue of a scheduler with the jobs of the history, where there is one; else as opened."""
    from ..site.calibration.site_state import read_state
    from ..site.capacity.jobs import JobSource, empty, of_history, with_live

    if asked.source != HERE and asked.source not in plugin_points(QUEUE):
        with opened(asked) as source:
            yield source
        return
    live = _queue_here() if asked.source == HERE else _read_queue(asked.source)
    memory = read_state().memory
    try:
        store = open_history(asked.history, create=False)
    except HistoryError:
        if asked.history is not None:
            raise
        name = live.scheduler
        yield with_live(JobSource(frame=empty(), kind=name, name=name), live, memory)
        return
    with store:
        yield with_live(of_history(store), live, memory)


@contextmanager
def _ingested(name: str, since_s: float) -> Iterator[str]:
    """What a scheduler tells, in a history that is gone afterwards."""
    since = datetime.fromtimestamp(since_s, UTC).isoformat()
    with TemporaryDirectory(prefix="precision-time-") as folder:
        path = str(Path(folder) / "history.sqlite")
        words = ["--history", path, "--since", since]
        with needs(name), redirect_stdout(sys.stderr):
            load_plugin(plugin_points(INGEST)[name]).main(words, standalone_mode=False)
        yield path


def _read_queue(name: str) -> Live:
    """The queue of one scheduler; raises what its adapter raises where that does not answer."""
    with needs(name):
        found: Live = load_plugin(plugin_points(QUEUE)[name])()
    return found


def _queue_here() -> Live:
    """The queue of the first scheduler that answers; raises ReportError where none does."""
    reasons = []
    for name in plugin_points(QUEUE):
        try:
            return _read_queue(name)
        except PrecisionTimeError as error:
            reasons.append(f"{name}: {error}")
    raise ReportError(
        f"no scheduler answers here ({'; '.join(reasons) or 'no adapter is installed'}): "
        "--from history and --from FILE need none"
    )
