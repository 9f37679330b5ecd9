"""The last step report of a job, as the history has it."""

from __future__ import annotations

from ..step_rate import StepReport
from .run import Reported


def reported(report: StepReport, start_s: float | None) -> Reported | None:
    """What a report says of a run that started at ``start_s`` (Unix seconds, None if unknown).

    None where the run made no step: then its step time is of an earlier one.
    """
    if not report.steps_of_run:
        return None
    began_s, startup_s = report.started_s, None
    if began_s is not None and start_s is not None:
        startup_s = max(0.0, began_s - start_s)
    return Reported(
        step_s=report.step_s,
        steps=report.steps_of_run,
        step_s_spread=report.step_s_spread,
        total_steps=report.total_steps,
        startup_s=startup_s,
        paused_s=report.paused_s,
    )
