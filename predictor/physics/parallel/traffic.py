"""Seconds of messages by the link they take, and how much of them nothing hides."""

from __future__ import annotations

from dataclasses import dataclass

from ...job.fabrics import fabric_of
from ...job.training_job import TrainingJob
from ..collectives import CollectiveTimes
from .placement import Group


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seconds of messages: inside a node (NVLink or PCIe), over the fabric, and ``exposed_s``.

    A message between nodes counts as one of the fabric, its part inside the nodes included.
    """

    node_s: float = 0.0
    fabric_s: float = 0.0
    exposed_s: float = 0.0

    @property
    def seconds(self) -> float:
        """All messages, hidden or not."""
        return self.node_s + self.fabric_s

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.node_s + other.node_s,
            self.fabric_s + other.fabric_s,
            self.exposed_s + other.exposed_s,
        )

    def times(self, factor: float) -> Traffic:
        """The same messages this often, or this part of them."""
        return Traffic(self.node_s * factor, self.fabric_s * factor, self.exposed_s * factor)

    def behind(self, work_s: float, first: float = 0.0) -> Traffic:
        """Hidden behind ``work_s`` of other work but for what is longer, and a share ``first``."""
        exposed = max(first * self.seconds, self.seconds - work_s)
        return Traffic(self.node_s, self.fabric_s, min(self.seconds, exposed))


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class Wires:
    """Prices the messages of one job."""

    collectives: CollectiveTimes
    job: TrainingJob

    def send(self, operation: str, payload_bytes: float, group: Group, times: float = 1) -> Traffic:
        """``times`` collectives that nothing hides; payload as ``CollectiveTimes.seconds`` has."""
        if times <= 0:
            return NO_TRAFFIC
        job = self.job
        if group.nodes > 1:
            payload_bytes /= self._adapters(group)
        seconds = times * self.collectives.seconds(
            job.hardware, operation, payload_bytes, group.gpus, group.nodes, job.fabric
        )
        if group.nodes > 1:
            return Traffic(fabric_s=seconds, exposed_s=seconds)
        return Traffic(node_s=seconds, exposed_s=seconds)

    def _adapters(self, group: Group) -> float:
        """Part of an adapter a group has: all groups of a node send at once."""
        rails = fabric_of(self.job.hardware, self.job.fabric).rails
        return min(1.0, rails * group.in_node / self.job.gpus_per_node)
