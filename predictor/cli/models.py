"""`precision-time fit` and `models`: fitted predictors, made and kept."""

from __future__ import annotations

import click

from ..units import MISSING
from .console import format_option, progress, show_json, show_rows
from .options import FITTING


@click.command()
@format_option
def fit(form: str) -> None:
    """Fit a predictor from profiles/ and every directory added to it, store and use it."""
    from ..estimate.store import fit_and_store

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
    """List the stored predictors, oldest first; * marks the one in use."""
    from ..estimate import artifacts
    from ..estimate.store import tables_hash

    found = [artifacts.shipped(), *artifacts.versions()]
    current = artifacts.current()
    if form == "json":
        here = tables_hash()
        show_json(
            [
                {
                    "version": m.version,
                    "in_use": m.version == current,
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
            "created": m.created[:19],
            "figures": ", ".join(f"{k} {v:g}" for k, v in m.figures.items()) or MISSING,
        }
        for m in found
    ]
    show_rows(rows, left=5)


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


@models.command()
@click.argument("version")
def remove(version: str) -> None:
    """Delete a stored predictor that is not in use."""
    from ..estimate import artifacts

    artifacts.remove(version)
    click.echo(f"removed {version}")
