"""The daemon as an installation sees it: it can be run, it answers, its predictor is right."""

from __future__ import annotations

import json
import time
from pathlib import Path

from profiles.roots import HOME_VARIABLE

from ..daemon import client
from ..errors import InstallError, SlurmError
from ..protocol import HookAnswer, HookRequest
from .options import Options, program
from .site import CommandLine, SlurmSite

ANSWER_TIMEOUT_S = 60.0
LIST_TIMEOUT_S = 120.0
SAMPLE_COMMENT = "model=resnet50 precision=amp epochs=1 samples=1281167 batch=64"
_SAMPLE = HookRequest(
    user="root", name="precision-time-check", comment=SAMPLE_COMMENT, tres_per_node="gres:gpu:1"
)


def require_runnable(site: SlurmSite) -> None:
    """Raises InstallError where the SlurmUser cannot run this Python environment."""
    try:
        CommandLine((str(program()), "--version"), site.user).run()
    except InstallError as error:
        who = site.user.pw_name if site.user else "this user"
        raise InstallError(
            f"{error}. The SlurmUser {who} runs the daemon: install Python and the package where "
            "every user can read them, such as /opt/precision-time"
        ) from None


def ask_sample(socket: Path) -> tuple[HookAnswer, float]:
    """What the daemon answers to a sample request, and in how many seconds; raises InstallError."""
    started = time.perf_counter()
    try:
        answer = client.ask(socket, _SAMPLE)
    except SlurmError as error:
        raise InstallError(f"the daemon does not answer: {error}") from None
    return answer, time.perf_counter() - started


def responds(socket: Path, *, wait: bool) -> bool:
    """Whether the daemon answers; with ``wait`` it just started, and InstallError is raised late.

    Raises InstallError where it was waited for in vain.
    """
    until = time.monotonic() + (ANSWER_TIMEOUT_S if wait else 0.0)
    while True:
        try:
            ask_sample(socket)
            return True
        except InstallError as error:
            if not wait:
                return False
            if time.monotonic() > until:
                raise InstallError(
                    f"{error} (waited {ANSWER_TIMEOUT_S:g} s): see its log; slurm.conf is "
                    "untouched, and `uninstall` removes what was written"
                ) from None
        time.sleep(0.2)


def predictor_in_use(options: Options, site: SlurmSite) -> str:
    """The version the daemon will load; raises InstallError where it is of other tables."""
    home = ((HOME_VARIABLE, str(options.home)),)
    words = (str(program()), "models", "list", "--format", "json")
    try:
        listed = json.loads(CommandLine(words, site.user, home, LIST_TIMEOUT_S).run())
        used = next(model for model in listed if model["in_use"])
    except (InstallError, ValueError, StopIteration) as error:
        raise InstallError(f"{options.home} cannot be read: {error}") from None
    version = str(used["version"])
    if not used["of_these_tables"]:
        raise InstallError(
            f"{version} was fitted on other tables: run `precision-time fit` as the SlurmUser, "
            f"with {HOME_VARIABLE}={options.home}"
        )
    return version
