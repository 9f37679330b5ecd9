"""How the whole-step check is shown."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .console import show_rows, show_table, warn

if TYPE_CHECKING:
    from ..measure.profiler.verify import Comparison, Summary, Verification

_SETS = (("all networks", None), ("networks set aside", True))


def show_verification(verified: Verification) -> None:
    """A line for each network and precision, then mean and median of the absolute errors."""
    for comparison in verified.unsteady:
        warn(
            f"{comparison.network} in {comparison.precision}: measured steps disagree"
            f" (spread {comparison.measured.spread:.0%}); something else ran on the device"
        )
    show_rows([_row(c) for c in verified.comparisons], left=2)
    click.echo()
    from ..measure.profiler.verify.compare import BY_THE_CLOCK, CALIBRATED, ERROR

    errors = ("", ERROR), (", calibrated", CALIBRATED), (", by the clock", BY_THE_CLOCK)
    show_table(
        ("absolute error", "steps", "mean", "median"),
        [
            _sum(name + suffix, found)
            for name, aside in _SETS
            for suffix, error in errors
            if (found := verified.summary(error, aside=aside))
        ],
    )


def _row(comparison: Comparison) -> dict[str, str]:
    measured = comparison.measured
    return {
        "network": comparison.network + (" (aside)" if comparison.aside else ""),
        "precision": comparison.precision,
        "predicted ms": f"{comparison.predicted_s * 1e3:.1f}",
        "measured ms": f"{measured.time_s * 1e3:.1f}",
        "pace": f"{comparison.pace:.2f}",
        "spread": f"{measured.spread:.0%}",
        "error": f"{comparison.error:+.0%}",
        "error, calibrated": f"{comparison.calibrated_error:+.0%}",
    }


def _sum(name: str, found: Summary) -> tuple[str, ...]:
    return name, str(found.steps), f"{found.mean:.1%}", f"{found.median:.1%}"


def verification_json(verified: Verification) -> dict[str, Any]:
    """Plain values; seconds, and errors as shares."""
    from ..measure.profiler.verify.compare import BY_THE_CLOCK, CALIBRATED

    total, calibrated = verified.summary(), verified.summary(CALIBRATED)
    by_the_clock = verified.summary(BY_THE_CLOCK)
    return {
        "device": verified.device,
        "mean_error": total and total.mean,
        "mean_error_calibrated": calibrated and calibrated.mean,
        "mean_error_by_the_clock": by_the_clock and by_the_clock.mean,
        "steps": [
            asdict(c) | {"error": c.error, "calibrated_error": c.calibrated_error}
            for c in verified.comparisons
        ],
    }
