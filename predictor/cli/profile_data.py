"""`precision-time profiles`: whether the data is sound, and what was measured."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict

import click

from .console import format_option, show_json, show_table

_REPEAT = re.compile(r"(the same \w+ as) .*")


@click.group()
def profiles() -> None:
    """Check the measured data, and show what it covers."""


@profiles.command()
@click.option("--all", "every", is_flag=True, help="List each quarantined row, not one a reason.")
@format_option
def check(every: bool, form: str) -> None:
    """Check everything under profiles/ and list what is in quarantine, with the reason.

    Exit code 1 where something is wrong.
    """
    from profiles.check import check as problems
    from profiles.check import quarantined

    found, refused = problems(), quarantined()
    if form == "json":
        show_json(
            {"problems": [asdict(p) for p in found], "quarantined": [asdict(q) for q in refused]}
        )
    else:
        for p in found:
            click.echo(f"{p.table} {p.row}: {p.reason}" if p.row else f"{p.table}: {p.reason}")
        click.echo(f"{len(found)} problems, {len(refused)} rows in quarantine")
        if every:
            show_table(
                ("table", "row", "reason"), [(q.table, q.row, q.reason) for q in refused], left=3
            )
        else:
            kinds = Counter((q.table, _REPEAT.sub(r"\1 another row", q.reason)) for q in refused)
            lines = [(table, reason, str(n)) for (table, reason), n in kinds.most_common()]
            show_table(("table", "reason", "rows"), lines, left=2)
    if found:
        raise SystemExit(1)


@profiles.command()
@click.option("--gpu", help="Only this GPU.")
@format_option
def coverage(gpu: str | None, form: str) -> None:
    """Show which operators and collectives were measured; a hole has no rows.

    Rows of an operator are forward + backward, ``-`` where there are none and blank where the GPU
    has no such format; rows of a collective are inside a node + across nodes.
    """
    from profiles.coverage import collective_coverage
    from profiles.coverage import coverage as operator_coverage
    from profiles.gpus import find_gpu

    name = None if gpu is None else find_gpu(gpu).name
    cells = [c for c in operator_coverage() if name in (None, c.gpu)]
    collectives = [c for c in collective_coverage() if name in (None, c.gpu)]
    if form == "json":
        show_json(
            {
                "operators": [asdict(c) for c in cells],
                "collectives": [asdict(c) for c in collectives],
            }
        )
        return
    formats = list(dict.fromkeys(c.dtype for c in cells))
    counted = {(c.gpu, c.op, c.dtype, c.direction): c.rows for c in cells}
    rows = [
        (g, op, *(_cell(counted, g, op, dtype) for dtype in formats))
        for g, op in dict.fromkeys((c.gpu, c.op) for c in cells)
    ]
    show_table(("GPU", "operator", *formats), rows, left=2)
    click.echo(f"\n{sum(c.hole for c in cells)} of {len(cells)} cells are holes\n")
    show_table(
        ("GPU", "collective", "rows"),
        [(c.gpu, c.op, f"{c.single_node}+{c.multi_node}") for c in collectives],
        left=2,
    )


def _cell(counted: dict[tuple[str, str, str, str], int], gpu: str, op: str, dtype: str) -> str:
    """Forward and backward rows; - for a hole, empty where the GPU has no such format."""
    if (gpu, op, dtype, "fwd") not in counted:
        return ""
    return "+".join(str(counted[gpu, op, dtype, side] or "-") for side in ("fwd", "bwd"))
