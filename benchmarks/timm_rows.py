"""How well physics alone prices the measured rows of timm's networks, recorded or built.

Run with ``python benchmarks/timm_rows.py [--output FILE.csv]``. One factor, the median ratio of
measured over physical, stands for the residual: what is left is the error of graphs and tables.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from predictor.errors import GraphError, JobError
from predictor.estimate.fitting import fit_steps
from predictor.estimate.measurement import Measurement, shipped
from predictor.graphs.catalog import entry_of

SOURCE = "timm-"  # how the ids of these rows begin


def priced(rows: Sequence[Measurement]) -> list[tuple[Measurement, str, float]]:
    """Each row with the family of its network and log(measured / physical)."""
    steps = fit_steps()
    found = []
    for row in rows:
        try:
            ratio = row.step_s / steps.price(row.job).step_s
            found.append((row, entry_of(row.job.model).family, float(np.log(ratio))))
        except (GraphError, JobError):
            continue
    return found


def show(name: str, ratios: Sequence[float], factor: float) -> None:
    """Mean and median of |physical x factor - measured| / measured."""
    if ratios:
        errors = np.abs(np.exp(factor - np.array(ratios)) - 1)
        click.echo(
            f"{name:28}{100 * errors.mean():7.1f} %{100 * np.median(errors):7.1f} %{len(ratios):6d}"
        )


@click.command()
@click.option("--output", type=click.Path(path_type=Path), help="A line for each row.")
def main(output: Path | None) -> None:
    """Print mean and median error of all rows, of recorded networks, and by family."""
    measured = shipped()
    found = priced([m for m in measured if m.id.startswith(SOURCE)])
    factor = float(np.median([ratio for _, _, ratio in found]))
    click.echo(f"{'one factor for all':28}{'mean':>9}{'median':>9}{'n':>6}")
    show("all", [r for _, _, r in found], factor)
    show("recorded", [r for _, family, r in found if family == "recorded"], factor)
    for family in sorted({family for _, family, _ in found} - {"recorded"}):
        show(family, [r for _, f, r in found if f == family], factor)
    if output is not None:
        with output.open("w", newline="") as file:
            csv.writer(file).writerows((m.id, m.job.model, f, r) for m, f, r in found)


if __name__ == "__main__":
    main()
