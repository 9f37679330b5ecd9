"""`precision-time slurm`: the group of the commands for Slurm, each imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

# Command -> module of this package that holds it, in the order of the help.
MODULES = {
    "install": "install",
    "check": "install",
    "uninstall": "install",
    "daemon": "daemon",
    "decide": "decide",
    "nodes": "nodes",
    "label-nodes": "label_nodes",
    "watch": "watch",
}


class Commands(click.Group):
    """A group that imports the module of a command only to show or run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands whose modules are there."""
        return [name for name, module in MODULES.items() if find_spec(f"{__name__}.{module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, None for an unknown one; raises ImportError where an extra is missing."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"{__name__}.{MODULES[cmd_name]}")
        command = getattr(module, cmd_name.replace("-", "_"), None)
        return command if isinstance(command, click.Command) else None


@click.group(cls=Commands)
def slurm() -> None:
    """Fill time limits and place jobs in Slurm, at submit.

    `install` changes slurm.conf and job_submit.lua, `daemon` answers the hook.
    """
