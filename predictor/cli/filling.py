"""What the commands that fill the history share: its option, the progress and the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..errors import PrecisionTimeError
from ..optional import needs
from ..units import count
from .console import progress, show_json, stop_asked, warn

if TYPE_CHECKING:
    from ..site.history.ingest import Item, Tally
    from ..site.history.settings import HistorySettings
    from ..site.history.store import History


def history_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--history`` as the argument ``history``."""
    add = click.option(
        "--history",
        metavar="PATH|URL",
        help="The history.  [default: $PRECISION_TIME_HISTORY, or history.sqlite in "
        "$PRECISION_TIME_HOME]",
    )
    return add(command)


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


def follow(look: Callable[[], Tally], every_s: float, otherwise: str) -> None:
    """Look until SIGTERM, and say what was added; ``otherwise`` is said where a look fails."""
    trouble = ""
    with stop_asked() as stop:
        while not stop.is_set():
            try:
                tally = look()
            except PrecisionTimeError as error:
                if str(error) != trouble:  # said when it begins, not with every look
                    warn(f"{error}; {otherwise}")
                trouble = str(error)
            else:
                trouble = ""
                if tally.new or tally.changed:
                    click.echo(f"{count(tally.new)} new, {count(tally.changed)} changed")
            stop.wait(every_s)


def show(tally: Tally, url: str, form: str) -> None:
    """The summary on stdout; what could not be read on stderr."""
    if form == "json":
        show_json({"history": url, **tally.as_dict()})
        return
    click.echo(f"{url}: {count(tally.runs)} runs read")
    lines = {"new": tally.new, "changed": tally.changed, "as before": tally.same}
    states = {state.value: number for state, number in tally.states.most_common()}
    left_out = {f"left out, {reason}": n for reason, n in tally.left_out.most_common()}
    unread = {f"unread, {reason}": n for reason, n in tally.unread_reasons.most_common()}
    for name, number in {**lines, **states, **left_out, **unread}.items():
        click.echo(f"  {name:<24}{count(number):>12}")
    if tally.cursor_s is not None:
        moment = datetime.fromtimestamp(tally.cursor_s).astimezone()
        click.echo(f"  complete until {moment:%Y-%m-%d %H:%M:%S %z}")
    if tally.unread:
        warn(f"{count(tally.unread)} records cannot be read, such as {'; '.join(tally.reasons)}")
