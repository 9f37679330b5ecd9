"""`precision-time profile`: the tables of a device that has none."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import JobError
from ..optional import needs
from ..units import duration
from .console import format_option, progress, show_json, show_table, stop_asked, warn
from .profile_data import show_verification, verification_json

if TYPE_CHECKING:
    from ..measure.profiler.session import Request, Summary
    from ..measure.profiler.verify import Verification


@click.command()
@click.option("--device", default="cuda:0", show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the tables; one that stands there is gone on with.",
)
@click.option("--minutes", type=float, default=20.0, show_default=True, help="Time of this run.")
@click.option(
    "--ranks", type=int, help="Also collectives over so many GPUs, or processes on a CPU."
)
@click.option(
    "--backend",
    type=click.Choice(("nccl", "gloo")),
    help="Of the collectives  [default: nccl on GPUs, gloo on a CPU]",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Half of the time train networks, and compare with what the tables predict.",
)
@format_option
def profile(
    device: str,
    out: Path,
    minutes: float,
    ranks: int | None,
    backend: str | None,
    verify: bool,
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
            minutes=minutes / 2 if verify else minutes,
            ranks=ranks,
            backend=backend or ("gloo" if device == "cpu" else "nccl"),
        )
        summary = measure(request, progress=shown, stop=stop)
        verified = None
        if verify and not stop.is_set():
            from ..measure.profiler.verify import verify as check

            verified = check(out, device, minutes=minutes / 2, stop=stop, progress=shown)
    _show(summary, request, form, verified)


def _show(summary: Summary, request: Request, form: str, verified: Verification | None) -> None:
    refused = sum(summary.refused.values())
    if refused:
        warn(f"{refused} rows were not reliable or could not run: {request.out / 'quarantine'}")
    if form == "json":
        checked = {} if verified is None else {"verification": verification_json(verified)}
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
        show_verification(verified)
