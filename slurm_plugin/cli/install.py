"""`precision-time slurm install`, `check` and `uninstall`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..install.options import Options

DIRECTORY = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
FAILED = 1


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where things are, the same for the three commands."""
    options = (
        click.option("--slurm-conf", type=FILE, help="slurm.conf; by default slurmctld is asked."),
        click.option("--slurm-bin", type=DIRECTORY, help="Directory of scontrol and sbatch."),
        click.option(
            "--lua-dir",
            type=DIRECTORY,
            help="Directory of our Lua modules; by default that of slurm.conf.",
        ),
        click.option(
            "--lua-library", type=FILE, help="Lua library slurmctld loads; by default ldd tells."
        ),
        click.option("--config", type=FILE, help="Policy file."),
        click.option("--home", type=DIRECTORY, help="Directory of fitted predictors."),
        click.option("--prefix", type=DIRECTORY, help="Keep our own files below this directory."),
        click.option(
            "--root", type=DIRECTORY, help="Prepare a tree below this directory and run no command."
        ),
        click.option(
            "--no-systemd",
            "systemd",
            is_flag=True,
            flag_value=False,
            default=True,
            help="The daemon is run by something else.",
        ),
        click.option(
            "--no-reconfigure",
            "reconfigure",
            is_flag=True,
            flag_value=False,
            default=True,
            help="Leave `scontrol reconfigure` to me.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_place_options
@click.option(
    "--no-fit",
    "fit",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave fitting the predictor to me.",
)
@click.option("--chain", is_flag=True, help="Add our lines to a job_submit.lua that is there.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def install(dry_run: bool, **given: Any) -> None:
    """Install the hook, its daemon and its policy on the host of slurmctld.

    Everything is tried before slurmctld sees it, and undone where a step fails. Installing again
    changes only what is missing or out of date.
    """
    from ..install.carry_out import carry_out
    from ..install.lua_library import library_of
    from ..install.plan import plan_install
    from ..install.preview import preview
    from ..install.records import read_records
    from ..install.site import find_site

    options = _options(**given)
    site = find_site(options)
    library = options.lua_library or library_of(site)
    records = read_records(options.records)
    plan = plan_install(options, site, library, records)
    if dry_run:
        _show(preview(plan))
        return
    if not plan.empty:
        carry_out(plan, records, click.echo)
    _show(f"note: {note}" for note in plan.notes)
    click.echo("nothing to change: all is in place" if plan.empty else "done; `check` proves it")


@click.command()
@_place_options
def check(**given: Any) -> None:
    """Prove that the installation works, a line for each promise; exit code 1 where one fails."""
    from ..install.checks import State, run_checks

    failed = 0
    for finding in run_checks(_options(**given)):
        click.echo(str(finding))
        failed += finding.state is State.FAILED
    if failed:
        click.get_current_context().exit(FAILED)


@click.command()
@_place_options
@click.option("--purge", is_flag=True, help="Also delete the policy and the fitted predictors.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def uninstall(purge: bool, dry_run: bool, **given: Any) -> None:
    """Take the installation back; a file that was changed since stays, and you are told."""
    import shutil

    from ..install.carry_out import carry_out
    from ..install.preview import preview
    from ..install.records import read_records
    from ..install.removal import leftovers, plan_removal, site_of

    options = _options(**given)
    records = read_records(options.records)
    if not records.files:
        click.echo(f"nothing is installed: there are no notes in {options.records}")
        return
    plan = plan_removal(options, site_of(options, records), records, purge=purge)
    extra = leftovers(options) if purge else ()
    if dry_run:
        _show([*preview(plan), *(f"delete {path}" for path in extra)])
        return
    carry_out(plan, records, click.echo).existing().save()
    for path in extra:
        click.echo(f"delete {path}")
        shutil.rmtree(path)
    _show(f"note: {note}" for note in plan.notes)
    click.echo("done")


def _options(**given: Any) -> Options:
    from ..install.options import Options

    plain: dict[str, Any] = {
        name: value.absolute() if isinstance(value, Path) else value
        for name, value in given.items()
    }
    return Options(**plain)


def _show(lines: Any) -> None:
    for line in lines:
        click.echo(line)
