"""`precision-time slurm install`, `check` and `uninstall`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.console import show_promises
from predictor.cli.options import listed_options

if TYPE_CHECKING:
    from ..install.site import Options


# The options that say where things are, the same for the three commands.
_place_options = listed_options("slurm-places")
_dry_run = listed_options("slurm-dry-run")


@click.command()
@_place_options
@_dry_run
def install(dry_run: bool, **given: Any) -> None:
    """Install the hook, its daemon and its policy on the host of slurmctld.

    slurm.conf comes last, and is put back where slurmctld does not take it. Installing again
    changes only what is missing or out of date. A job_submit.lua of your own stays as it is: you
    are shown the two lines to add.
    """
    from ..install import install as installing

    installing.install(_options(**given), click.echo, dry_run=dry_run)


@click.command()
@_place_options
def check(**given: Any) -> None:
    """Prove that the installation works, a line for each promise; exit code 1 where one fails."""
    from ..install.checks import run_checks

    show_promises(run_checks(_options(**given)))


@click.command()
@_place_options
@click.option("--purge", is_flag=True, help="Also delete the policy and your own predictors.")
@_dry_run
def uninstall(purge: bool, dry_run: bool, **given: Any) -> None:
    """Take the installation back; a script that is not as we wrote it stays, and you are told."""
    from ..install import install as installing

    installing.uninstall(_options(**given), click.echo, purge=purge, dry_run=dry_run)


def _options(**given: Any) -> Options:
    from ..install.site import Options

    absolute: dict[str, Any] = {
        k: v.absolute() if isinstance(v, Path) else v for k, v in given.items() if v is not None
    }
    return Options(**absolute)
