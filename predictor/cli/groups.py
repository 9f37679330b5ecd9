"""Groups of commands: imported when asked for, found by entry point, installed by an extra."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from textwrap import indent
from typing import Any

import click

from profiles.storage import shipped_yaml

from ..errors import NotInstalledError
from ..job.words import accepted
from ..optional import needs


class CommandGroup(click.Group):
    """Commands added to it, then those of ``modules``, then those of the entry points ``plugins``.

    ``modules`` are the modules of ``package`` by the name of their command, in the order of the
    help: a command ``label-nodes`` is the object ``label_nodes``. Both kinds are imported only to
    show or run them. Raises NotInstalledError where one misses a package: the name of a plug-in is
    that of its extra, other commands are installed by ``extra``.
    """

    def __init__(
        self,
        *arguments: Any,
        package: str = "",
        modules: Mapping[str, str] | None = None,
        plugins: str = "",
        extra: str = "",
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._package, self._modules = package, modules or {}
        self._plugins = plugin_points(plugins) if plugins else {}
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, each once."""
        return list(dict.fromkeys((*self.commands, *self._modules, *self._plugins)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None where there is none.

        A plug-in that misses something becomes a command whose help says what installs it.
        """
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name in self._modules:
            module = import_module(f"{self._package}.{self._modules[cmd_name]}")
            found = getattr(module, cmd_name.replace("-", "_"))
        elif cmd_name in self._plugins:
            try:
                found = load_plugin(self._plugins[cmd_name])
            except NotInstalledError as error:
                return _missing(cmd_name, error)
        else:
            return None
        assert isinstance(found, click.Command), f"{cmd_name} is not a click command"
        return with_examples(found, cmd_name if ctx.parent is None else f"{self.name} {cmd_name}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; UsageError, with the nearest, for one that there is not."""
        name, known = args[0], self.list_commands(ctx)
        if not (name in known or name.startswith("-") or ctx.resilient_parsing):
            raise click.UsageError(f"No such command {name!r}; {accepted(name, known)}", ctx)
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and type(command := found[1]) is click.Command:
            _refuse_repeated(click.Context(command, ctx, name, **command.context_settings), args)
        return found

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            extra = name if name in self._plugins else self._extra
            if not extra:
                raise
            with needs(extra):
                raise error


def _refuse_repeated(ctx: click.Context, args: list[str]) -> None:
    """UsageError for an option of one value that is given twice: the last would hold, unsaid."""
    given = ctx.command.make_parser(ctx).parse_args(args[1:])[2]
    for one in {*given}:
        single = isinstance(one, click.Option) and not (one.multiple or one.is_flag or one.count)
        if single and given.count(one) > 1:
            raise click.UsageError(
                f"{one.opts[0]} is given more than once: it takes one value", ctx
            )


def with_examples(command: click.Command, name: str) -> click.Command:
    """The command with the examples of ``examples.yaml`` under its help, its subcommands too."""
    if examples := shipped_yaml("examples.yaml", __file__).get(name):
        command.epilog = "\b\nExamples:\n" + indent(examples, "  ")
    if isinstance(command, click.Group):
        for word, one in command.commands.items():
            with_examples(one, f"{name} {word}")
    return command


@cache
def plugin_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in the order of the alphabet."""
    return {point.name: point for point in sorted(entry_points(group=group))}


def load_plugin(point: EntryPoint) -> Any:
    """What an entry point names; raises NotInstalledError without what its extra brings."""
    with needs(point.name):
        return point.load()


def _missing(name: str, error: NotInstalledError) -> click.Command:
    def refuse() -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        help=f"Not usable: {error}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
