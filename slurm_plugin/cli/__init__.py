"""`precision-time slurm`: the group of the commands for Slurm, each imported when it is needed."""

from __future__ import annotations

from pathlib import Path

import click

from predictor.cli.groups import CommandGroup
from profiles.storage import shipped_yaml

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The policy file.  [default: /etc/precision-time/slurm.yaml, if it is there]",
)


@click.group(cls=CommandGroup, package=__name__, modules=shipped_yaml("commands.yaml", __file__))
def slurm() -> None:
    """Fill time limits and place jobs in Slurm, at submit.

    `install` changes slurm.conf and job_submit.lua, `daemon` answers the hook.
    """
