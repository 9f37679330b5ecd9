"""The fitted predictor the daemon will load, seen as the SlurmUser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from profiles.roots import HOME_VARIABLE

from ..errors import InstallError
from .options import Options, program
from .processes import run_argv
from .site import Site
from .steps import Command

FIT_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class InUse:
    """The predictor in use; ``current`` where it was fitted on the tables that the daemon has."""

    version: str
    current: bool


def in_use(options: Options, site: Site) -> InUse | None:
    """The predictor in use in the daemon's home, None before the first fit.

    Raises InstallError where the SlurmUser cannot read that home.
    """
    try:
        reply = run_argv(
            (str(program()), "models", "list", "--format", "json"),
            user=site.user,
            environment=_environment(options),
            timeout_s=120,
        )
        used = [model for model in json.loads(reply) if model["in_use"]]
    except (InstallError, ValueError) as error:
        raise InstallError(f"{options.home_path} cannot be read: {error}") from None
    return InUse(used[0]["version"], used[0]["of_these_tables"]) if used else None


def require_runnable(site: Site) -> None:
    """Raises InstallError where the SlurmUser cannot run this Python environment."""
    try:
        run_argv((str(program()), "--version"), user=site.user)
    except InstallError as error:
        who = site.user.name if site.user else "this user"
        raise InstallError(
            f"{error}. The SlurmUser {who} runs the daemon: install Python and the package where "
            "every user can read them, such as /opt/precision-time"
        ) from None


def fit(options: Options, site: Site) -> Command:
    """The command that fits one, as the SlurmUser, for its files must belong to it."""
    return Command(
        argv=(str(program()), "fit"),
        why="fit the predictor, under a minute",
        user=site.user,
        environment=_environment(options),
        timeout_s=FIT_TIMEOUT_S,
    )


def _environment(options: Options) -> Mapping[str, str]:
    return {HOME_VARIABLE: str(options.home_path)}
