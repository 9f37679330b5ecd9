"""Which Slurm runs the bench: that of the machine, or one below SLURM_PREFIX."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "srun",
)
SERVICES = ("munged", "mariadbd", "mariadb-install-db")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLUGINS = ("lib/slurm", "lib64/slurm", "lib/*/slurm-wlm", "lib/*/slurm")


@dataclass(frozen=True, slots=True)
class Installation:
    """A Slurm. ``prefix`` is None for the machine's own, found by PATH."""

    prefix: Path | None = None

    @property
    def path(self) -> str:
        """PATH of a process that uses it; the sbin directories are in it for everyone."""
        inherited = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}".removeprefix(":")
        if self.prefix is None:
            return inherited
        return f"{self.prefix / 'bin'}:{self.prefix / 'sbin'}:{inherited}"

    @property
    def plugin_dir(self) -> Path | None:
        """Where its plugins are; None for the machine's own, which knows."""
        if self.prefix is None:
            return None
        found = (path for pattern in PLUGINS for path in self.prefix.glob(pattern))
        return next((path for path in found if any(path.glob("job_submit_lua.so"))), None)

    @property
    def library_path(self) -> str | None:
        """LD_LIBRARY_PATH; None for the machine's own."""
        if self.plugin_dir is None:
            return None
        return f"{self.plugin_dir.parent}:{self.plugin_dir}"

    @property
    def version(self) -> tuple[int, int]:
        """Year and month of its release, (22, 5) for 22.05.8."""
        words = subprocess.run(
            [self.program("slurmctld"), "-V"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"(\d+)\.(\d+)\.", words)
        assert found, f"slurmctld -V says {words!r}"
        return int(found[1]), int(found[2])

    def program(self, name: str) -> str:
        """Path of one of its programs; raises FileNotFoundError."""
        found = shutil.which(name, path=self.path)
        if found is None:
            raise FileNotFoundError(f"{name} is not installed")
        return found

    def missing(self) -> str | None:
        """Why no bench can run on it; None when one can."""
        if self.prefix is not None:
            absent = [p for p in PROGRAMS if not self._own(p)]
            if absent:
                return f"SLURM_PREFIX={self.prefix} has no {', '.join(absent)} in bin or sbin"
            if self.plugin_dir is None:
                return f"SLURM_PREFIX={self.prefix} has no job_submit_lua.so: built without Lua?"
        wanted = SERVICES if self.prefix else (*PROGRAMS, *SERVICES)
        absent = [p for p in wanted if not shutil.which(p, path=self.path)]
        return f"not installed: {', '.join(absent)}" if absent else None

    def _own(self, name: str) -> bool:
        assert self.prefix is not None
        return any(os.access(self.prefix / part / name, os.X_OK) for part in ("bin", "sbin"))
