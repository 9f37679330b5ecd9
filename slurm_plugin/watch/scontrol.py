"""Giving a running job another limit."""

from __future__ import annotations

import contextlib

from ..config import Slurm
from ..errors import SourceError
from ..sources.commands import Commands
from .revision import Revision


def set_limit(revision: Revision, slurm: Slurm) -> None:
    """Write the limit and the mark on the job, both or neither; raises SourceError.

    Needs the rights of SlurmUser or root: Slurm lets nobody else write the mark.
    """
    job, commands = revision.job, Commands.of(slurm)
    target = f"jobid={job.label or job.job_id}"
    comment = f"admincomment={revision.mark.text()}"
    try:
        commands.run("scontrol", "update", target, f"timelimit={revision.limit_min}", comment)
    except SourceError:
        # slurmctld takes the comment first, and keeps it where it then refuses the limit.
        with contextlib.suppress(SourceError):
            commands.run("scontrol", "update", target, f"admincomment={job.admin_comment}")
        raise
