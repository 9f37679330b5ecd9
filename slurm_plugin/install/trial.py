"""A job that is only tested: the hook runs for it, and nothing is queued."""

from __future__ import annotations

import os
import subprocess

from ..config import Policy
from ..errors import InstallError
from .sample import COMMENT
from .site import Site

MARK = "precision-time:"
TIMEOUT_S = 60.0


def submit_trial(site: Site, rules: Policy) -> str:
    """The line our hook shows for a test job; raises InstallError where there is none.

    The cluster may well refuse the job (no such GPU, no such partition): the hook ran before.
    """
    if rules.limits.mode == "off" and rules.placement.mode == "off":
        return "the policy is off for limits and placement: nothing is to be shown"
    argv = (
        site.command("sbatch"),
        "--test-only",
        "--comment",
        COMMENT,
        "--gres=gpu:1",
        "--wrap",
        "true",
    )
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, **site.environment},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{argv[0]} cannot be run: {error}") from None
    ours = [line for line in done.stderr.splitlines() if MARK in line]
    if not ours:
        said = " ".join(done.stderr.split())[-300:]
        raise InstallError(
            f"it shows none ({said or 'nothing at all'}): see the log of slurmctld for {MARK!r}"
        )
    return ours[0].partition(MARK)[2].strip()
