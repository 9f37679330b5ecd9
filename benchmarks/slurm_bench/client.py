"""Submits through libslurm, which is how fast slurmctld can be asked at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.installation import Installation

from .jobs import SCRIPT, Job, gpus

SOURCE = Path(__file__).with_name("submit.c")
TIMEOUT_S = 300.0
_HEADER = "#include <slurm/slurm.h>\n"


def missing(installation: Installation) -> str | None:
    """Why the client cannot be built for a Slurm; None when it can."""
    if shutil.which("gcc") is None:
        return "gcc is not installed"
    found = subprocess.run(
        ["gcc", "-E", "-x", "c", *_includes(installation), "-", "-o", "/dev/null"],
        input=_HEADER,
        text=True,
        capture_output=True,
        check=False,
    )
    return "slurm/slurm.h is not installed, Debian: libslurm-dev" if found.returncode else None


class Client:
    """submit.c, built for a Slurm; raises CalledProcessError with gcc's own words on stderr."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self.program = cluster.root / "submit"
        prefix, plugins = cluster.installation.prefix, cluster.installation.plugin_dir
        libraries = [] if prefix is None or plugins is None else [f"-L{plugins.parent}"]
        subprocess.run(
            [
                "gcc",
                "-O2",
                *_includes(cluster.installation),
                str(SOURCE),
                *libraries,
                "-lslurm",
                "-pthread",
                "-o",
                str(self.program),
            ],
            check=True,
        )

    def submit(self, jobs: Sequence[Job], threads: int) -> float:
        """Seconds until all were accepted, each held; raises CalledProcessError."""
        lines = "".join(f"{job.name}\t{job.comment}\n" for job in jobs)
        done = subprocess.run(
            [str(self.program), str(threads), str(SCRIPT), gpus(self.cluster)],
            input=lines,
            env=self.cluster.env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        return float(done.stdout)


def _includes(installation: Installation) -> list[str]:
    return [] if installation.prefix is None else [f"-I{installation.prefix / 'include'}"]
