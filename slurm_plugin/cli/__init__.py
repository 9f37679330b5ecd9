"""`precision-time slurm`: the group of the commands for Slurm, each imported when it is needed."""

from __future__ import annotations

import click

from predictor.cli.groups import CommandGroup
from predictor.cli.options import listed_options
from profiles.storage import shipped_yaml

config_option = listed_options("slurm-config")


@click.group(cls=CommandGroup, package=__name__, modules=shipped_yaml("commands.yaml", __file__))
def slurm() -> None:
    """Fill time limits and place jobs in Slurm, at submit.

    `install` changes slurm.conf and job_submit.lua, `daemon` answers the hook.
    """
