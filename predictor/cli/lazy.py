"""A group of commands whose modules are imported only to show or run one of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click


class LazyGroup(click.Group):
    """A group of commands by the module of ``package`` that holds each, in the order of the help.

    A command ``label-nodes`` is the object ``label_nodes`` of its module. Commands that were added
    to the group itself come first.
    """

    def __init__(
        self, *arguments: Any, package: str, modules: Mapping[str, str], **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._package = package
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands of its own, and those whose modules are there."""
        found = self._modules.items()
        there = [name for name, module in found if find_spec(f"{self._package}.{module}")]
        return [*self.commands, *there]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, None for an unknown one; raises ImportError where an extra is missing."""
        if cmd_name in self.commands or cmd_name not in self.list_commands(ctx):
            return self.commands.get(cmd_name)
        module = import_module(f"{self._package}.{self._modules[cmd_name]}")
        command = getattr(module, cmd_name.replace("-", "_"), None)
        return command if isinstance(command, click.Command) else None
