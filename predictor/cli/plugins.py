"""Commands of the adapters, found by entry point and imported when they are needed.

A package declares a click command in the entry-point group ``precision_time.commands``; the name
of the entry point is the name of the command and of the extra that installs what it needs.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "precision_time.commands"
OURS = "precision-time"
OWN_PACKAGE = __name__.partition(".")[0]


@cache
def plugins() -> dict[str, EntryPoint]:
    """The entry points by the name of their command, in the order of the alphabet."""
    return {point.name: point for point in sorted(entry_points(group=GROUP))}


def load(name: str) -> click.Command | None:
    """The command of that name, None where no package declares it.

    Where something it imports is not installed it becomes a command whose help says what to
    install, and that raises the ModuleNotFoundError when it is invoked.
    """
    point = plugins().get(name)
    if point is None:
        return None
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        return _missing(name, error)
    if not isinstance(command, click.Command):
        raise TypeError(f"{point.value}, declared as {GROUP} {name}, is not a click command")
    return command


def remedy(name: str | None, error: ModuleNotFoundError) -> str | None:
    """How to install what a plug-in command misses; None where the fault is elsewhere."""
    point = plugins().get(name or "")
    missing = (error.name or "").partition(".")[0]
    if point is None or missing in ("", OWN_PACKAGE, point.module.partition(".")[0]):
        return None
    distribution = point.dist.name if point.dist is not None else OURS
    return f"pip install '{distribution}[{point.name}]'"


def _missing(name: str, error: ModuleNotFoundError) -> click.Command:
    def refuse() -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        help=f"Not usable: {error}; {remedy(name, error) or 'see how it is installed'}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
