"""What the admin chose, and the paths that follow from it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..config import DEFAULT_PATH
from ..errors import InstallError

HOME = Path("/var/lib/precision-time")
RECORDS = Path("/var/lib/precision-time-slurm")
PROGRAM = "precision-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of ``install``, ``check`` and ``uninstall``.

    ``root`` is a directory that stands for ``/``, as for building a package: files go below it,
    and no command runs. ``prefix`` keeps our own files below a directory of a live system.
    ``config`` and ``home`` are the policy file and the directory of predictors of one's own.
    """

    root: Path | None = None
    prefix: Path | None = None
    slurm_conf: Path | None = None
    lua_library: Path | None = None
    slurm_bin: Path | None = None
    config: Path | None = None
    home: Path | None = None
    systemd: bool = True
    reconfigure: bool = True
    chain: bool = False

    @property
    def live(self) -> bool:
        """True where commands run on this machine."""
        return self.root is None

    @property
    def policy_path(self) -> Path:
        """The policy file, as the daemon sees it."""
        return self.config or self._ours(DEFAULT_PATH)

    @property
    def home_path(self) -> Path:
        """The directory of predictors of one's own, as the daemon sees it."""
        return self.home or self._ours(HOME)

    @property
    def records(self) -> Path:
        """Where we record what was changed; only its owner may write there."""
        return self.on_disk(self._ours(RECORDS))

    def on_disk(self, path: Path) -> Path:
        """Where a path of the running system lies for this installation."""
        return path if self.root is None else self.root / path.relative_to("/")

    def in_system(self, path: Path) -> Path:
        """The path the running system has for a file on disk."""
        return path if self.root is None else Path("/") / path.relative_to(self.root)

    def _ours(self, path: Path) -> Path:
        return path if self.prefix is None else self.prefix / path.relative_to("/")


def program() -> Path:
    """The ``precision-time`` of this Python environment; raises InstallError."""
    beside = Path(sys.executable).parent / PROGRAM
    found = beside if beside.exists() else Path(shutil.which(PROGRAM) or beside)
    if not found.exists():
        raise InstallError(f"{beside} is missing: install the package precision-time with pip")
    return found.absolute()
