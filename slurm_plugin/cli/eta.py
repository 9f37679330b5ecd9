"""`precision-time slurm eta`: when running jobs end, and when pending ones start and end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from predictor.cli.console import format_option, show_json, show_table

from ..config import policy_at
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from . import config_option

if TYPE_CHECKING:
    from predictor.site.expected_starts import ExpectedTime


@click.command()
@click.option("-u", "--user", help="Jobs of this user alone.")
@config_option
@format_option
def eta(user: str | None, config: Path | None, form: str) -> None:
    """Tell when GPU jobs end and start, with the range of nine in ten.

    A running job's end is that of its printed progress, where its output says any (root reads it
    as the job's user), else of its estimate. Pending jobs are replayed behind the running ones by
    the same estimates. Times are hours:minutes from now.
    """
    from predictor.site.calibration.site_state import read_state

    from ..live_queue import etas, read

    policy = policy_at(config)
    live = read(policy)
    queue = SlurmSource(Commands.of(policy.slurm)).queue()  # its text alone names output files
    found = [one for one in etas(live, queue, read_state().memory) if user in (None, one.user)]
    if form == "json":
        show_json({"at_s": live.at_s, "jobs": [asdict(one) for one in found], "notes": live.notes})
        return
    names = ("JOBID", "USER", "NAME", "ST", "GPUS", "STARTS_IN", "ENDS_IN", "BY")
    rows = [
        (
            one.job_id,
            one.user[:10],
            one.name[:12],
            one.state,
            str(one.gpus),
            "" if one.state == "R" else _in(one.start, live.at_s),
            _in(one.end, live.at_s),
            one.basis,
        )
        for one in found
    ]
    show_table(names, rows, left=len(names))
    for note in live.notes:
        click.echo(note, err=True)


def _in(moment: ExpectedTime | None, now_s: float) -> str:
    """``1-02:30`` or ``2:30 (1:10..4:00)`` from now: days, hours and minutes, rounded."""
    if moment is None:
        return "N/A"
    found = []
    for at_s in (moment.low_s, moment.expected_s, moment.high_s):
        hours, minute = divmod(round(max(0.0, at_s - now_s) / 60), 60)
        days, hour = divmod(hours, 24)
        found.append(f"{days}-{hour:02d}:{minute:02d}" if days else f"{hour}:{minute:02d}")
    low, half, high = found
    return half if low == high else f"{half} ({low}..{high})"
