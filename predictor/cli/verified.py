"""How the whole-step check is shown."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .console import show_rows, show_table, warn

if TYPE_CHECKING:
    from ..measure.profiler.verify import Comparison, Summary, Verification

GIB = 2**30


def show_verification(verified: Verification) -> None:
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
    show_rows([_row(c) for c in verified.comparisons], left=2)
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
        _sum(name + ending, found)
        for ending, aside in (("", None), (", networks set aside", True))
        for name, error in STAGES
        if (found := verified.summary(error, aside=aside))
    ]
    if found := summary_of([u.error for u in ups]):
        lines.append(_sum("faster than FP32", found))
    show_table(("absolute error", "steps", "mean", "median"), lines)


def _row(comparison: Comparison) -> dict[str, str]:
    measured = comparison.measured
    row = {
        "network": comparison.network + (" (aside)" if comparison.aside else ""),
        "precision": comparison.run.name,
        "predicted ms": f"{comparison.predicted.step_s * 1e3:.1f}",
        "measured ms": f"{comparison.measured_s * 1e3:.1f}",
        "spread": f"{measured.timing.spread:.0%}",
        "before": _share(comparison.before_error),
        "tables": _share(comparison.error),
        "one run": _share(comparison.one_run_error),
        "all others": _share(comparison.calibrated_error),
    }
    if measured.peak_bytes is not None:
        row["GiB"] = f"{measured.peak_bytes / GIB:.1f}"
        row["memory"] = _share(comparison.memory_error)
    if measured.power_w is not None:
        row["W"] = f"{measured.power_w:.0f}"
    return row


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:+.0%}"


def _sum(name: str, found: Summary) -> tuple[str, ...]:
    return name, str(found.steps), f"{found.mean:.1%}", f"{found.median:.1%}"


def verification_json(verified: Verification) -> dict[str, Any]:
    """Plain values; seconds, and errors as shares."""
    from ..measure.profiler.verify.compare import STAGES

    errors = {name.replace(" ", "_").replace(",", ""): error for name, error in STAGES}
    summaries = {name: verified.summary(error) for name, error in errors.items()}
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
                "aside": c.aside,
                "predicted_s": c.predicted.step_s,
                "measured": asdict(c.measured),
                "errors": {name: error(c) for name, error in errors.items()},
            }
            for c in verified.comparisons
        ],
        "speed_ups": [asdict(u) | {"error": u.error} for u in verified.speed_ups],
    }
