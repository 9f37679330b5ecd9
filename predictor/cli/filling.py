"""What commands on the history share: its options, and the progress and summary of filling it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import PrecisionTimeError
from ..optional import needs
from ..site.history.run import JobState
from ..units import count
from .console import progress, show_json, stop_asked, warn
from .options import listed_options, together

if TYPE_CHECKING:
    from ..site.history.ingest import Item, Tally
    from ..site.history.settings import HistorySettings
    from ..site.history.store import History
    from ..site.history.tables import Where

Filters = dict[str, Any]

history_option = listed_options("history")
_STATES = click.Choice([state.value for state in JobState])
# Which runs of the history are meant; the command passes what it is given to ``where_of``.
filter_options = together(
    listed_options("runs"),
    click.option("--state", "states", multiple=True, type=_STATES, help="How it ended."),
    click.option("--only-reported", is_flag=True, help="Runs that told their step time."),
)


def where_of(filters: Filters, *, job_ids: tuple[str, ...] = ()) -> Where:
    """The runs that ``filter_options`` mean."""
    from ..site.history.tables import Where

    states = tuple(map(JobState, filters["states"]))
    return Where(**{**filters, "states": states}, job_ids=job_ids)


def open_history(
    url: str | None, settings: HistorySettings | None = None, *, create: bool = True
) -> History:
    """The history at a path or URL; without ``create`` there has to be one.

    Raises HistoryError, and NotInstalledError without what the extra ``history`` brings.
    """
    with needs("history"):
        from ..site.history.store import History
    return History.open(url, settings=settings, create=create)


def filled(
    store: History,
    items: Iterable[Item],
    share: Callable[[Tally], float],
    *,
    cursor: str | None = None,
    since_s: float = 0.0,
) -> Tally:
    """Fill the history under a progress bar; ``share`` is what part of the source is read."""
    from ..site.history.ingest import fill

    def told(tally: Tally) -> None:
        bar(f"{count(tally.records)} records", share(tally))

    with progress("filling the history") as bar:
        return fill(store, items, cursor=cursor, since_s=since_s, told=told)


def follow(
    look: Callable[[], Tally], every_s: float, otherwise: str, heartbeat: Path | None = None
) -> None:
    """Look until SIGTERM, and say what was added; ``otherwise`` is said where a look fails.

    ``heartbeat`` is touched at every look.
    """
    trouble = ""
    with stop_asked() as stop:
        while not stop.is_set():
            if heartbeat is not None:
                heartbeat.touch()
            try:
                tally = look()
            except PrecisionTimeError as error:
                if str(error) != trouble:  # said when it begins, not with every look
                    warn(f"{error}; {otherwise}")
                trouble = str(error)
            else:
                trouble = ""
                if tally.added.new or tally.added.changed:
                    new, changed = count(tally.added.new), count(tally.added.changed)
                    click.echo(f"{new} new, {changed} changed")
            stop.wait(every_s)


def show(tally: Tally, url: str, form: str) -> None:
    """The summary on stdout; what could not be read on stderr."""
    if form == "json":
        show_json({"history": url, **tally.as_dict()})
        return
    click.echo(f"{url}: {count(tally.runs)} run{'s' * (tally.runs != 1)} read")
    added = tally.added
    lines = {"new": added.new, "changed": added.changed, "as before": added.same}
    states = {state.value: number for state, number in tally.states.most_common()}
    left_out = {f"left out, {reason}": n for reason, n in tally.left_out.most_common()}
    unread = {f"unread, {reason}": n for reason, n in tally.unread_reasons.most_common()}
    noted = {f"unknown, {reason}": n for reason, n in tally.noted.most_common()}
    told = {**lines, **states, **left_out, **noted, **unread}
    for name, number in told.items():
        click.echo(f"  {name:<{max(24, *map(len, told))}}{count(number):>12}")
    if tally.cursor_s is not None:
        moment = datetime.fromtimestamp(tally.cursor_s).astimezone()
        click.echo(f"  complete until {moment:%Y-%m-%d %H:%M:%S %z}")
    if tally.unread or tally.noted:
        total = tally.unread + tally.noted.total()
        whole = " whole" if tally.noted else ""
        records = f"{count(total)} record{'s' * (total != 1)}"
        warn(f"{records} cannot be read{whole}, such as {'; '.join(tally.reasons)}")
