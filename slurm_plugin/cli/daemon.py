"""`precision-time slurm daemon`: the process that the hook in slurmctld asks."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from predictor.cli.console import warn
from predictor.service.process import one_thread_for_algebra

from . import config_option

# Imported, not run by name: what it sends must have the same names here.
DECIDER = "from slurm_plugin.daemon.decider_child import main; main()"

BETWEEN_CRASHES_S = 1.0
PR_SET_PDEATHSIG = 1  # prctl(2)


def kept_up(serve: Callable[[], None], crashed: Callable[[str], None]) -> None:
    """Serve in a child, and in another one where a signal ends it; call it before any thread."""
    passed_on = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    while True:
        if (child := os.fork()) == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.environ["WATCHDOG_PID"] = str(os.getpid())
            return serve()
        for number in passed_on:
            signal.signal(number, lambda number, _: os.kill(child, number))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for number in passed_on:
            signal.signal(number, signal.SIG_DFL)
        if code >= 0 or -code in passed_on[:2]:
            sys.exit(max(code, 0))
        crashed(signal.Signals(-code).name)
        time.sleep(BETWEEN_CRASHES_S)


@click.command()
@config_option
@click.option("--check-config", is_flag=True, help="Read policy and rules, say so, and end.")
def daemon(config: Path | None, check_config: bool) -> None:
    """Answer the submit hook, in the foreground.

    SIGHUP reads policy, rules and predictor anew, SIGTERM ends. The log goes to stderr.
    """
    one_thread_for_algebra()
    from predictor.service.logs import logging_to

    from ..config import DEFAULT_PATH, policy_at, rules_of
    from ..daemon import PACKAGES
    from ..daemon.decider_child import load_policy
    from ..daemon.service import SlurmDaemon

    policy = policy_at(config)
    if check_config:
        rules_of(policy)
        click.echo(f"{config or DEFAULT_PATH}: the policy can be used")
        return
    if config is None and not DEFAULT_PATH.exists():
        warn(f"{DEFAULT_PATH} is not there: all defaults hold")

    form = policy.daemon.log_format
    command = (sys.executable, "-P", "-c", DECIDER, form, "-" if config is None else str(config))

    async def serve() -> None:
        await SlurmDaemon(policy, partial(load_policy, config), command).run()

    def run() -> None:
        with logging_to(form, *PACKAGES):
            asyncio.run(serve())

    def crashed(name: str) -> None:
        with logging_to(form, __name__):
            logging.getLogger(__name__).error("ended by %s: the daemon starts again", name)

    kept_up(run, crashed)
