"""The options that say which runs of the history are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..site.ended_job import JobState
from .options import MOMENT

if TYPE_CHECKING:
    from ..site.history.tables import Where

Filters = dict[str, Any]

_STATES = click.Choice([state.value for state in JobState])
_OPTIONS = (
    click.option("--since", "since_s", type=MOMENT, help="Runs that ended then or later."),
    click.option("--until", "until_s", type=MOMENT, help="Runs that ended before."),
    click.option("--cluster", "clusters", multiple=True, help="Repeatable, as all below."),
    click.option("--user", "users", multiple=True, help="User, clear or hashed."),
    click.option("--model", "models", multiple=True, help="Model that was asked for."),
    click.option("--gpu-type", "gpu_types", multiple=True, help="Type the scheduler allocated."),
    click.option("--state", "states", multiple=True, type=_STATES, help="How it ended."),
    click.option("--only-reported", is_flag=True, help="Runs that told their step time."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command passes what it is given by them to ``where_of``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def where_of(filters: Filters, *, job_ids: tuple[str, ...] = ()) -> Where:
    """The runs they mean."""
    from ..site.history.tables import Where

    states = tuple(map(JobState, filters["states"]))
    return Where(**{**filters, "states": states}, job_ids=job_ids)
