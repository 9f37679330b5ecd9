"""`precision-time k8s`: the group of the commands for Kubernetes, each imported when needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

# Command -> module of this package that holds it, in the order of the help.
MODULES = {"serve": "serve", "check": "check"}


class Commands(click.Group):
    """A group that imports the module of a command only to show or run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands whose modules are there."""
        return [name for name, module in MODULES.items() if find_spec(f"{__name__}.{module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, None for an unknown one; raises ImportError where an extra is missing."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(import_module(f"{__name__}.{MODULES[cmd_name]}"), cmd_name, None)
        return command if isinstance(command, click.Command) else None


@click.group(cls=Commands)
def k8s() -> None:
    """Rank GPU nodes by predicted time and fill deadlines in Kubernetes.

    `serve` answers kube-scheduler and the API server, `check` says what stands in the way.
    """
