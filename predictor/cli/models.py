"""`precision-time fit` and `models`: fitted predictors, made and kept."""

from __future__ import annotations

from pathlib import Path

import click

from ..units import MISSING
from .console import format_option, progress, show_json, show_rows
from .options import FITTING


@click.command()
@click.option(
    "--profiles",
    "directories",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Add this directory of measured tables first, as `profiles add` does; repeatable.",
)
@format_option
def fit(directories: tuple[Path, ...], form: str) -> None:
    """Fit a predictor from profiles/ and every directory added to it, store and use it."""
    from ..estimate.added_profiles import add
    from ..estimate.store import fit_and_store

    for directory in directories:
        add(directory)
    with progress(FITTING) as bar:
        manifest = fit_and_store(bar)
    if form == "json":
        show_json({"version": manifest.version, "figures": dict(manifest.figures)})
        return
    click.echo(manifest.version)
    for name, value in manifest.figures.items():
        click.echo(f"{name:<26}{value:g}")


@click.group()
def models() -> None:
    """List fitted predictors, and choose the one in use."""


@models.command("list")
@format_option
def list_(form: str) -> None:
    """List the stored predictors, oldest first; * marks the one in use and those pinned."""
    from ..estimate import artifacts
    from ..estimate.store import tables_hash

    found = [artifacts.shipped(), *artifacts.versions()]
    current, pinned = artifacts.current(), artifacts.pinned()
    if form == "json":
        here = tables_hash()
        show_json(
            [
                {
                    "version": m.version,
                    "in_use": m.version == current,
                    "pinned": m.version in pinned,
                    "created": m.created,
                    "tables_hash": m.tables_hash,
                    "of_these_tables": m.tables_hash == here,
                    "libraries": m.libraries,
                    "figures": m.figures,
                    "shipped": m == found[0],
                }
                for m in found
            ]
        )
        return
    rows = [
        {
            "version": m.version,
            "in use": "*" * (m.version == current),
            "shipped": "*" * (m == found[0]),
            "pinned": "*" * (m.version in pinned),
            "created": m.created[:19],
            "figures": ", ".join(f"{k} {v:g}" for k, v in m.figures.items()) or MISSING,
        }
        for m in found
    ]
    show_rows(rows, left=6)


def _of_a_version(verb: str, help: str, said: str = "{}") -> None:
    """Add a command that does to a stored version what ``artifacts`` calls the same."""

    def run(version: str) -> None:
        from ..estimate import artifacts

        getattr(artifacts, verb)(version)
        click.echo(said.format(version))

    models.command(verb, help=help)(click.argument("version")(run))


@models.command()
@click.argument("version")
def use(version: str) -> None:
    """Put a stored predictor to use, or the `shipped` one."""
    from ..estimate import artifacts

    click.echo(artifacts.use(version).version)


@models.command()
def rollback() -> None:
    """Go back to the predictor in use before this one."""
    from ..estimate import artifacts

    click.echo(artifacts.rollback().version)


_of_a_version(
    "pin",
    "Keep a stored predictor from being removed.\n\nA daemon stays with it whatever is put to use, "
    "where its configuration names it as predictor_version.",
)
_of_a_version("unpin", "Let a pinned predictor be removed again.")
_of_a_version(
    "remove", "Delete a stored predictor that is neither in use nor pinned.", "removed {}"
)
