"""Ended jobs of accounting as records of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from predictor.site.ended_job import EndedJob
from predictor.site.history.ingest import Item, LeftOut, Through, Unread
from predictor.site.history.run import Reported

from ..cluster import Partition
from ..config import SlurmPolicy
from ..daemon.loading import rules_of
from ..limit import MINUTE_S
from ..sources.accounting import BadRow, SliceEnd, streamed
from ..sources.base import SlurmSource
from ..sources.commands import Commands
from .gpus import GpuNames
from .runs import Runs

NO_GPUS = LeftOut("without GPUs")
ReportOf = Callable[[EndedJob], Reported | None]


def records(
    policy: SlurmPolicy, since_s: float, until_s: float, report_of: ReportOf = lambda _: None
) -> Iterator[Item]:
    """The runs of all GPU jobs that ended in [since_s, until_s), a day after the other.

    ``report_of`` is asked for the last step report of each. Raises SourceError where Slurm does
    not answer, RulesError where the site's rules cannot be read.
    """
    commands = Commands.of(policy.slurm)
    slurm = SlurmSource(commands)
    names = GpuNames(slurm.nodes(), policy.hardware)
    runs = Runs(rules_of(policy), default_limits(slurm.partitions()))
    for row in streamed(commands, since_s, until_s, names):
        if isinstance(row, EndedJob):
            yield runs.run(row, report_of(row)) if row.gpus else NO_GPUS
        elif isinstance(row, BadRow):
            yield Unread(f"job {row.job_id}", row.reason)
        elif isinstance(row, SliceEnd):
            yield Through(row.at_s)


def default_limits(partitions: Iterable[Partition]) -> dict[str, float]:
    """The limit of a job that names none, in seconds by partition; without one, unlimited.

    Accounting does not tell whose a limit is: one that differs from the default is the user's.
    """
    limits = ((p.name, p.default_min or p.max_min) for p in partitions)
    return {name: found * MINUTE_S for name, found in limits if found is not None}
