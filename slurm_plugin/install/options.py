"""What the admin chose, and the paths that follow from it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..config import DEFAULT_PATH
from ..errors import InstallError

HOME = Path("/var/lib/precision-time")
PROGRAM = "precision-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of ``install``, ``check`` and ``uninstall``.

    ``root`` is a directory that stands for ``/``, as for building a package: files go below it,
    and no command runs. ``config`` is the policy file, ``home`` the directory of predictors of
    one's own, ``slurm_bin`` that of scontrol and sbatch.
    """

    root: Path | None = None
    slurm_conf: Path | None = None
    slurm_bin: Path | None = None
    lua_library: Path | None = None
    config: Path = DEFAULT_PATH
    home: Path = HOME
    systemd: bool = True
    reconfigure: bool = True

    @property
    def live(self) -> bool:
        """True where commands run on this machine."""
        return self.root is None

    def on_disk(self, path: Path) -> Path:
        """Where a path of the running system lies for this installation."""
        return path if self.root is None else self.root / path.relative_to("/")

    def in_system(self, path: Path) -> Path:
        """The path the running system has for a file on disk."""
        return path if self.root is None else Path("/") / path.relative_to(self.root)


def program() -> Path:
    """The ``precision-time`` of this Python environment; raises InstallError."""
    beside = Path(sys.executable).parent / PROGRAM
    found = beside if beside.exists() else Path(shutil.which(PROGRAM) or beside)
    if not found.exists():
        raise InstallError(f"{beside} is missing: install the package precision-time with pip")
    return found.absolute()
