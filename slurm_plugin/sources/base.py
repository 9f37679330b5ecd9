"""The one interface to Slurm's data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from predictor.site.ended_job import EndedJob

from ..cluster import Node, Partition, QueuedJob, Settings, WallLimits


class SlurmSource(Protocol):
    """A way to read Slurm; every method raises SourceError naming command and reply."""

    name: str

    def settings(self) -> Settings:
        """What of slurm.conf matters here."""

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""

    def queue(self) -> tuple[QueuedJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""

    def wall_limits(self) -> WallLimits:
        """MaxWall of QOS and associations; empty where there is no accounting."""

    def ended(self, since_s: float, until_s: float | None = None) -> Iterator[EndedJob]:
        """Jobs that ended in a period of Unix seconds, oldest first, streamed."""
