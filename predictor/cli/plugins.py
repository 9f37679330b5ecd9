"""Commands of other packages, found by entry point and imported when they are needed.

A package declares a click command in an entry-point group; the name of the entry point is the name
of the command and of the extra that installs what it needs.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click

from ..errors import NotInstalledError

OURS = "precision-time"
OWN_PACKAGE = __name__.partition(".")[0]


class PluginGroup(click.Group):
    """Commands of its own in the order they were added, then those of an entry-point group.

    A plug-in is imported only when it is asked for. Raises NotInstalledError where one misses
    what its extra brings.
    """

    def __init__(self, *arguments: object, plugins: str, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self._plugins = plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names: its own, then those of the plug-ins by the alphabet."""
        return [*self.commands, *(n for n in declared(self._plugins) if n not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None where there is none."""
        return super().get_command(ctx, cmd_name) or load(self._plugins, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            mend = remedy(self._plugins, ctx.invoked_subcommand, error)
            if mend is None:
                raise
            raise NotInstalledError(f"{error}: {mend}") from error


@cache
def declared(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by the name of their command, in the order of the alphabet."""
    return {point.name: point for point in sorted(entry_points(group=group))}


def load(group: str, name: str) -> click.Command | None:
    """The command of that name, None where no package declares it.

    Where something it imports is not installed it becomes a command whose help says what to
    install, and that raises the ModuleNotFoundError when it is invoked.
    """
    point = declared(group).get(name)
    if point is None:
        return None
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        return _missing(group, name, error)
    if not isinstance(command, click.Command):
        raise TypeError(f"{point.value}, declared as {group} {name}, is not a click command")
    return command


def remedy(group: str, name: str | None, error: ModuleNotFoundError) -> str | None:
    """How to install what a plug-in command misses; None where the fault is elsewhere."""
    point = declared(group).get(name or "")
    missing = (error.name or "").partition(".")[0]
    if point is None or missing in ("", OWN_PACKAGE, point.module.partition(".")[0]):
        return None
    distribution = point.dist.name if point.dist is not None else OURS
    return f"pip install '{distribution}[{point.name}]'"


def _missing(group: str, name: str, error: ModuleNotFoundError) -> click.Command:
    def refuse() -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        help=f"Not usable: {error}; {remedy(group, name, error) or 'see how it is installed'}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
