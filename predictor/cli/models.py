"""`precision-time fit`, `learn` and `models`: fitted predictors, made and kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..units import MISSING
from .console import format_option, progress, show_json, show_rows
from .predictors import FITTING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..estimate.manifest import Manifest


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


@click.command()
@click.option("--rows", type=click.IntRange(50), help="Measured rows of each round.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random draws.")
def learn(rows: int | None, seed: int) -> None:
    """Learn the hyper-parameters stored beside the tables; minutes, once per data release."""
    from dataclasses import replace

    from ..estimate.fitting import HYPERPARAMETERS, learn_and_store
    from ..estimate.residual.learn import KNOWN_PLAN, NOVEL_PLAN

    known, novel = (
        replace(plan, seed=seed, rows=rows or plan.rows) for plan in (KNOWN_PLAN, NOVEL_PLAN)
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
    """List the stored predictors, oldest first; * marks the one in use and those pinned."""
    from ..estimate import artifacts

    found = [artifacts.shipped(), *artifacts.versions()]
    current, pinned = artifacts.current(), artifacts.pinned()
    if form == "json":
        show_json([_plain(m, current, pinned) | {"shipped": m == found[0]} for m in found])
        return
    rows = [
        {
            "version": m.version,
            "in use": "*" * (m.version == current),
            "shipped": "*" * (m == found[0]),
            "pinned": "*" * (m.version in pinned),
            "created": m.created[:19],
            "figures": _figures(m),
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


def _plain(manifest: Manifest, current: str | None, pinned: Sequence[str]) -> dict[str, object]:
    from ..estimate.store import tables_hash

    return {
        "version": manifest.version,
        "in_use": manifest.version == current,
        "pinned": manifest.version in pinned,
        "created": manifest.created,
        "tables_hash": manifest.tables_hash,
        "of_these_tables": manifest.tables_hash == tables_hash(),
        "libraries": dict(manifest.libraries),
        "figures": dict(manifest.figures),
    }


def _figures(manifest: Manifest) -> str:
    return ", ".join(f"{k} {v:g}" for k, v in manifest.figures.items()) or MISSING
