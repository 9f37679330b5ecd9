"""`precision-time profile` measures a device; `profiles` checks, shows and adds tables."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profiles.gpus import find_gpu
from profiles.storage import HERE

from ..errors import JobError
from ..optional import needs
from ..units import GIB, duration
from .console import format_option, progress, show_json, show_rows, show_table, stop_asked, warn
from .options import complete, listed_options

if TYPE_CHECKING:
    from ..estimate.added_profiles import AddedProfiles
    from ..measure.profiler.session import Request, Summary
    from ..measure.profiler.verify.compare import Comparison, ErrorSummary, Verification

_REPEAT = re.compile(r"(the same \w+ as) .*")


@click.command()
@listed_options("profile")
@format_option
def profile(
    device: str,
    out: Path,
    minutes: float,
    ranks: int | None,
    backend: str | None,
    verify: bool,
    train: bool,
    form: str,
) -> None:
    """Measure the operators of a device, and its collectives with --ranks.

    The tables have the layout of profiles/; `precision-time profiles add` takes them up. A run that
    was interrupted goes on where it was. docs/how-to/profiling.md says what is measured and how.
    """
    if minutes <= 0:
        raise JobError("minutes", minutes, "expected more than 0")
    with progress(f"profiling {device}") as shown, stop_asked() as stop:
        shown("importing torch", 0.0)
        with needs("profile"):
            from ..measure.profiler.session import Request
            from ..measure.profiler.session import profile as measure
        request = Request(
            device=device,
            out=out,
            minutes=minutes / 2 if verify or train else minutes,
            ranks=ranks,
            backend=backend or ("gloo" if device == "cpu" else "nccl"),
        )
        summary = measure(request, progress=shown, stop=stop)
        verified = None
        if (verify or train) and not stop.is_set():
            from ..measure.profiler.verify.compare import compare, trained

            name, left = trained(out, device, minutes=minutes / 2, stop=stop, progress=shown)
            verified = compare(out, name, left=left, progress=shown) if verify else None
    _show(summary, request, form, verified)


def _show(summary: Summary, request: Request, form: str, verified: Verification | None) -> None:
    refused = sum(summary.refused.values())
    if refused:
        warn(f"{refused} rows were not reliable or could not run: {request.out / 'quarantine'}")
    if form == "json":
        checked = {} if verified is None else {"verification": _verification_json(verified)}
        show_json(asdict(summary) | checked)
        return
    counts = {**summary.operators, **summary.collectives}
    show_table(("measured", "rows"), [(op, f"{n:,}") for op, n in counts.items()])
    if summary.refused:
        click.echo()
        show_table(("refused", "rows"), [(why, f"{n:,}") for why, n in summary.refused.items()])
    rows = sum(counts.values())
    click.echo(
        f"\n{summary.device}: {rows:,} rows in {duration(summary.seconds)},"
        f" {summary.stood + rows:,} in all; `precision-time profiles add {request.out}` and"
        " `precision-time fit` use them"
    )
    if verified is not None:
        click.echo()
        _show_verification(verified)


def _show_verification(verified: Verification) -> None:
    """A line for each network and precision, speed-ups, then mean and median of the errors."""
    from ..measure.profiler.verify.compare import STAGES, summary_of

    for comparison in verified.unsteady:
        warn(
            f"{comparison.network} in {comparison.run.name}: measured steps disagree"
            f" (spread {comparison.measured.timing.spread:.0%});"
            " something else ran on the device"
        )
    if verified.left:
        warn(f"{verified.left} networks are still to be trained: run the same command again")
    show_rows([_compared(c) for c in verified.comparisons], left=2)
    click.echo()
    ups = verified.speed_ups
    if ups:
        head = ("faster than FP32", "precision", "predicted", "measured", "error")
        rows = [
            (u.network, u.precision, f"{u.predicted:.2f} x", f"{u.measured:.2f} x", _share(u.error))
            for u in ups
        ]
        show_table(head, rows, left=2)
        click.echo()
    lines = [
        _sum(stage + ending, found)
        for ending, aside in (("", None), (", networks set aside", True))
        for stage in STAGES
        if (found := verified.summary(stage, aside=aside))
    ]
    if found := summary_of([u.error for u in ups]):
        lines.append(_sum("faster than FP32", found))
    show_table(("absolute error", "steps", "mean", "median"), lines)


def _compared(comparison: Comparison) -> dict[str, str]:
    from ..measure.profiler.verify.compare import ALL_RUNS, BEFORE, MEMORY, ONE_RUN, TABLES

    measured, aside = comparison.measured, comparison.run.candidate.aside
    row = {
        "network": comparison.network + " (aside)" * aside,
        "precision": comparison.run.name,
        "predicted ms": f"{comparison.predicted.step_s * 1e3:.1f}",
        "measured ms": f"{comparison.measured_s * 1e3:.1f}",
        "spread": f"{measured.timing.spread:.0%}",
    }
    stages = {"before": BEFORE, "tables": TABLES, "one run": ONE_RUN, "all others": ALL_RUNS}
    if measured.peak_bytes is not None:
        row["GiB"] = f"{measured.peak_bytes / GIB:.1f}"
        stages["memory"] = MEMORY
    row |= {name: _share(comparison.errors.get(stage)) for name, stage in stages.items()}
    if measured.power_w is not None:
        row["W"] = f"{measured.power_w:.0f}"
    return row


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:+.0%}"


def _sum(name: str, found: ErrorSummary) -> tuple[str, ...]:
    return name, str(found.steps), f"{found.mean:.1%}", f"{found.median:.1%}"


def _verification_json(verified: Verification) -> dict[str, Any]:
    """Plain values; seconds, and errors as shares."""
    from ..measure.profiler.verify.compare import STAGES

    keys = {stage.replace(" ", "_").replace(",", ""): stage for stage in STAGES}
    summaries = {key: verified.summary(stage) for key, stage in keys.items()}
    return {
        "device": verified.device,
        "left": verified.left,
        "mean_errors": {name: found.mean for name, found in summaries.items() if found},
        "steps": [
            {
                "network": c.network,
                "precision": c.run.precision.value,
                "compiled": c.run.compiled,
                "batch_size": c.run.candidate.batch_size,
                "aside": c.run.candidate.aside,
                "predicted_s": c.predicted.step_s,
                "measured": asdict(c.measured),
                "errors": {key: c.errors.get(stage) for key, stage in keys.items()},
            }
            for c in verified.comparisons
        ],
        "speed_ups": [asdict(u) | {"error": u.error} for u in verified.speed_ups],
    }


@click.group()
def profiles() -> None:
    """Check the measured data, show what it covers, and add your own."""


@profiles.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--all", "every", is_flag=True, help="List each quarantined row, not one a reason.")
@format_option
def check(directory: Path | None, every: bool, form: str) -> None:
    """Check everything under profiles/ and list what is in quarantine, with the reason.

    With DIRECTORY check that one, which has the same layout. Exit code 1 where something is wrong.
    """
    from profiles.check import check as problems
    from profiles.check import quarantined

    where = directory or HERE
    found, refused = problems(where), quarantined(where)
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
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="To keep it under; by default that of the directory.")
def add(directory: Path, name: str | None) -> None:
    """Keep a directory of measured tables, as `precision-time profile` writes it.

    Its devices can be named from then on, and the next `precision-time fit` uses its rows.
    """
    from ..estimate.added_profiles import add as keep

    kept = keep(directory, name)
    click.echo(f"{kept.name}: {_held(kept)}; run `precision-time fit` to use them")


@profiles.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", help="Which, where the directory has several.")
@format_option
def report(directory: Path, device: str | None, form: str) -> None:
    """Compare the steps that `precision-time profile --verify` measured with predictions.

    Before any row of the device, from its tables, and with the factor of one other network; the
    speed-up of each precision, memory and energy. The device itself is not needed.
    """
    with needs("profile"):
        from ..measure.profiler.verify.compare import compare
        from ..measure.profiler.verify.steps import devices
    found = [device] if device else devices(directory)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise click.UsageError(
            f"invalid directory={directory}; expected steps of one device: {names}"
        )
    verified = compare(directory, found[0])
    if form == "json":
        show_json(_verification_json(verified))
    else:
        _show_verification(verified)


@profiles.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete an added directory."""
    from ..estimate.added_profiles import remove as drop

    drop(name)
    click.echo(f"removed {name}")


@profiles.command("list")
@format_option
def list_(form: str) -> None:
    """List the directories that were added."""
    from ..estimate.added_profiles import added

    found = added()
    if form == "json":
        show_json([asdict(a) for a in found])
        return
    show_table(("name", "holds"), [(a.name, _held(a)) for a in found], left=2)


def _held(kept: AddedProfiles) -> str:
    devices = ", ".join(kept.devices) or "no device"
    return f"{kept.operator_rows} operators and {kept.collective_rows} collectives of {devices}"


@profiles.command()
@click.option("--gpu", help="Only this GPU.", shell_complete=complete("gpu"))
@format_option
def coverage(gpu: str | None, form: str) -> None:
    """Show which operators and collectives were measured; a hole has no rows.

    Rows of an operator are forward + backward, ``-`` where there are none and blank where the GPU
    has no such format; rows of a collective are inside a node + across nodes.
    """
    from profiles.coverage import collective_coverage
    from profiles.coverage import coverage as operator_coverage

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
