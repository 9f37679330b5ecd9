"""What an installation consists of: steps as values, so that they can be shown before they run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path


class Kind(StrEnum):
    """What a file is for; uninstalling treats them differently."""

    POLICY = "policy"
    UNIT = "unit"
    MODULE = "module"
    SCRIPT = "script"
    SLURM_CONF = "slurm.conf"


@dataclass(frozen=True, slots=True)
class Account:
    """A user that files belong to or commands run as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, and what takes its effect back.

    ``user`` is None for the user who installs. ``timeout_s`` bounds it. A ``tolerant`` command
    may fail: that is a note, not the end of the installation.
    """

    argv: tuple[str, ...]
    why: str
    undo: tuple[str, ...] = ()
    user: Account | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    tolerant: bool = False

    def __str__(self) -> str:
        """The line a person would type."""
        words = [f"{name}={shlex.quote(text)}" for name, text in self.environment.items()]
        line = " ".join([*words, shlex.join(self.argv)])
        return f"{line}   # as {self.user.name}" if self.user else line


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDirectory:
    """A directory to make; one that is there keeps its owner and mode."""

    path: Path
    mode: int = 0o755
    owner: Account | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile:
    """A file to write whole; ``before`` is what it held when the plan was made.

    None stands for no file: ``after=None`` removes it. ``then`` makes the change known to a
    service; it runs after writing and after undoing. ``after`` may equal ``before``: then only
    the time stamp changes, which slurmctld looks at. ``restores`` marks what uninstalling does.
    """

    path: Path
    kind: Kind
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    then: Command | None = None
    restores: bool = False

    @property
    def idle(self) -> bool:
        """True where uninstalling finds the file as it was."""
        return self.restores and self.after == self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitDaemon:
    """Wait until the daemon on this socket answers a sample request."""

    socket: Path
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitController:
    """Wait until slurmctld answers again after its configuration changed."""

    scontrol: str
    environment: Mapping[str, str]
    timeout_s: float = 60.0


Step = Command | MakeDirectory | WriteFile | AwaitDaemon | AwaitController


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in the order that is safe at every point.

    ``notes`` are for the admin: what is left to do by hand, and why.
    """

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True where everything is in place; waiting changes nothing."""
        return all(isinstance(step, AwaitDaemon | AwaitController) for step in self.steps)


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return sha256(content).hexdigest()
