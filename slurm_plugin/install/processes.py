"""Running the commands of Slurm, systemd and ourselves."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InstallError


@dataclass(frozen=True, slots=True)
class SystemUser:
    """A user of this machine that files belong to or commands run as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command; ``user`` is None for the user who installs."""

    argv: tuple[str, ...]
    user: SystemUser | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    def __str__(self) -> str:
        """The line a person would type."""
        words = [f"{name}={shlex.quote(text)}" for name, text in self.environment.items()]
        line = " ".join([*words, shlex.join(self.argv)])
        return f"{line}   # as {self.user.name}" if self.user else line

    def run(self, given: str | None = None) -> str:
        """What it writes to stdout, ``given`` on its stdin; raises InstallError with its error."""
        try:
            done = subprocess.run(
                self.argv,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                check=False,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL if given is None else None,
                **_identity(self.user),
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"{self.argv[0]} did not end within {self.timeout_s:g} s") from None
        except OSError as error:
            who = f" as user {self.user.name}" if self.user else ""
            raise InstallError(f"{self.argv[0]} cannot be run{who}: {error.strerror}") from None
        if done.returncode != 0:
            printed = " ".join((done.stderr.strip() or done.stdout.strip())[-400:].split())
            line = " ".join(self.argv[:4])
            raise InstallError(f"{line} ended with {done.returncode}: {printed or 'no message'}")
        return str(done.stdout)


def _identity(user: SystemUser | None) -> dict[str, Any]:
    """Arguments of subprocess for another user; nothing where we are that user."""
    if user is None or user.uid == os.geteuid():
        return {}
    if os.geteuid() != 0:
        raise InstallError(f"only root can run commands as {user.name}: run this as root")
    return {"user": user.uid, "group": user.gid, "extra_groups": [], "cwd": "/"}
