"""`precision-time fit`, `learn` and `models`: fitted predictors, made and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..units import MISSING
from .console import format_option, progress, show_json, show_table
from .predictors import FITTING

if TYPE_CHECKING:
    from ..manifest import Manifest


@click.command()
@format_option
def fit(form: str) -> None:
    """Fit a predictor from profiles/, store it and put it to use."""
    from ..store import fit_and_store

    with progress(FITTING) as bar:
        manifest = fit_and_store(bar)
    if form == "json":
        show_json({"version": manifest.version, "figures": dict(manifest.figures)})
        return
    click.echo(manifest.version)
    for name, value in manifest.figures.items():
        click.echo(f"{name:<26}{value:g}")


@click.command()
@click.option("--rows", type=click.IntRange(50), help="Measured rows of each step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random draws.")
def learn(rows: int | None, seed: int) -> None:
    """Learn the hyper-parameters stored beside the tables; minutes, once per data release."""
    from dataclasses import replace

    from ..fitting import HYPERPARAMETERS, learn_and_store
    from ..residual.learn import KNOWN_SCHEDULE, NOVEL_SCHEDULE

    known, novel = (
        replace(schedule, seed=seed, rows=rows or schedule.rows)
        for schedule in (KNOWN_SCHEDULE, NOVEL_SCHEDULE)
    )
    learn_and_store((known, novel), _loss)
    click.echo(f"stored in {HYPERPARAMETERS}; run `precision-time fit` to use them")


def _loss(stage: str, loss: float) -> None:
    click.echo(f"{stage}: {loss:.4f}", err=True)


@click.group()
def models() -> None:
    """List fitted predictors, and choose the one in use."""


@models.command("list")
@format_option
def list_(form: str) -> None:
    """List the stored predictors, oldest first; * marks the one in use."""
    from .. import artifacts

    found, current = artifacts.versions(), artifacts.current()
    if form == "json":
        show_json([_plain(m, current) for m in found])
        return
    head = ("version", "in use", "created", "figures")
    rows = [
        (m.version, "*" if m.version == current else "", m.created[:19], _figures(m)) for m in found
    ]
    show_table(head, rows, left=len(head))


@models.command()
@click.argument("version")
def use(version: str) -> None:
    """Put a stored predictor to use."""
    from .. import artifacts

    click.echo(artifacts.use(version).version)


@models.command()
def rollback() -> None:
    """Go back to the predictor in use before this one."""
    from .. import artifacts

    click.echo(artifacts.rollback().version)


@models.command()
@click.argument("version")
def remove(version: str) -> None:
    """Delete a stored predictor that is not in use."""
    from .. import artifacts

    artifacts.remove(version)
    click.echo(f"removed {version}")


def _plain(manifest: Manifest, current: str | None) -> dict[str, object]:
    return {
        "version": manifest.version,
        "in_use": manifest.version == current,
        "created": manifest.created,
        "tables_hash": manifest.tables_hash,
        "libraries": dict(manifest.libraries),
        "figures": dict(manifest.figures),
    }


def _figures(manifest: Manifest) -> str:
    return ", ".join(f"{k} {v:g}" for k, v in manifest.figures.items()) or MISSING
