"""Ended jobs of accounting as records of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from predictor.site.ended_job import EndedJob
from predictor.site.history.ingest import Item, LeftOut, Through, Unread
from predictor.site.history.run import PrintedProgress, Reported

from ..cluster import Partition, SlurmNode
from ..config import SlurmHardware, SlurmPolicy
from ..daemon.loading import rules_of
from ..hardware import gpu_named, gpu_of
from ..limit import MINUTE_S
from ..sources.accounting import BadRow, SliceEnd, streamed
from ..sources.base import SlurmSource
from ..sources.commands import Commands
from .runs import Runs

_KEPT = 65_536  # GRES types times nodes


class GpuNames:
    """Names GPUs as submit does: through the site's ``hardware`` and the nodes as they are today.

    The node of a job may be gone; then its GRES type alone tells.
    """

    def __init__(self, nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._hardware = hardware
        self._named = lru_cache(maxsize=_KEPT)(self._name)

    def __call__(self, kind: str | None, node_names: tuple[str, ...]) -> str | None:
        """The GPU of a job by GRES type and nodes; the type where no GPU is known for it."""
        return self._named(kind, node_names[0] if node_names else "")

    def _name(self, kind: str | None, node_name: str) -> str | None:
        node = self._nodes.get(node_name)
        gres = () if node is None else node.gpus
        found = {
            None if (gpu := gpu_of(node, one, self._hardware)) is None else gpu.name
            for one in gres
            if node is not None and (kind is None or one.type in (kind, None))
        }
        if len(found) == 1 and (name := found.pop()) is not None:
            return name
        known = None if kind is None else gpu_named(kind, self._hardware)
        return kind if known is None else known.name


NO_GPUS = LeftOut("without GPUs")
ReportOf = Callable[[EndedJob], Reported | None]
PrintedOf = Callable[[EndedJob], PrintedProgress | None]


def records(
    policy: SlurmPolicy,
    since_s: float,
    until_s: float,
    report_of: ReportOf = lambda _: None,
    printed_of: PrintedOf = lambda _: None,
) -> Iterator[Item]:
    """The runs of all GPU jobs that ended in [since_s, until_s), a day after the other.

    ``report_of`` is asked for the last step report of each, ``printed_of`` for what it printed.
    Raises SourceError where Slurm does not answer, RulesError where rules cannot be read.
    """
    commands = Commands.of(policy.slurm)
    slurm = SlurmSource(commands)
    names = GpuNames(slurm.nodes(), policy.hardware)
    runs = Runs(rules_of(policy), default_limits(slurm.partitions()))
    for row in streamed(commands, since_s, until_s, names):
        if isinstance(row, EndedJob):
            yield runs.run(row, report_of(row), printed_of(row)) if row.gpus else NO_GPUS
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
