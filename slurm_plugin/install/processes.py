"""Running the commands of a plan."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from ..errors import InstallError
from .steps import Account, Command


def run(command: Command) -> str:
    """What a command writes to stdout; raises InstallError with the last it said on stderr."""
    return run_argv(
        command.argv,
        user=command.user,
        environment=command.environment,
        timeout_s=command.timeout_s,
    )


def run_argv(
    argv: tuple[str, ...],
    *,
    user: Account | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    given: str | None = None,
) -> str:
    """What a command writes to stdout, ``given`` on its stdin; raises InstallError."""
    try:
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL if given is None else None,
            **_identity(user),
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{argv[0]} did not end within {timeout_s:g} s") from None
    except OSError as error:
        who = f" as user {user.name}" if user else ""
        raise InstallError(f"{argv[0]} cannot be run{who}: {error.strerror}") from None
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip())[-400:].split())
        line = " ".join(argv[:4])
        raise InstallError(f"{line} ended with {done.returncode}: {said or 'it said nothing'}")
    return str(done.stdout)


def _identity(user: Account | None) -> dict[str, Any]:
    """Arguments of subprocess for another user; nothing where we are that user."""
    if user is None or user.uid == os.geteuid():
        return {}
    if os.geteuid() != 0:
        raise InstallError(f"only root can run commands as {user.name}: run this as root")
    return {"user": user.uid, "group": user.gid, "extra_groups": [], "cwd": "/"}
