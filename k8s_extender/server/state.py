"""What decisions rest on at this moment; each part is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..config import Config
from ..records import GpuNode
from .known import Brain


class NodeSource(Protocol):
    """A table of nodes that keeps itself fresh."""

    @property
    def table(self) -> Mapping[str, GpuNode]:
        """The newest table."""

    @property
    def synced(self) -> bool:
        """True once the table was whole."""

    @property
    def age_s(self) -> float:
        """Seconds since the last word of the API server."""

    @property
    def error(self) -> str:
        """What went wrong last, empty while all is well."""

    def start(self) -> None:
        """Begin to watch."""

    def use(self, config: Config) -> None:
        """Read labels by another configuration."""

    def stop(self) -> None:
        """End the watch."""


class State:
    """The configuration, the nodes and the brain in use; ``brain`` is None until one is loaded."""

    def __init__(self, config: Config, nodes: NodeSource) -> None:
        self.config = config
        self.nodes = nodes
        self.brain: Brain | None = None
        self.draining = False
        self.loading_failed = ""

    def table(self) -> Mapping[str, GpuNode]:
        """The newest table of nodes."""
        return self.nodes.table

    def why_not_ready(self) -> tuple[str, ...]:
        """What stands in the way of answering well; empty where nothing does."""
        reasons = []
        if self.draining:
            reasons.append("shutting down")
        if self.brain is None:
            reasons.append(self.loading_failed or "the predictor is not loaded yet")
        if not self.nodes.synced:
            error = f": {self.nodes.error}" if self.nodes.error else ""
            reasons.append(f"the nodes are not listed yet{error}")
        return tuple(reasons)

    def warnings(self) -> tuple[str, ...]:
        """What is wrong while answers still go out."""
        if self.nodes.synced and self.nodes.age_s > self.config.nodes.stale_s:
            return (f"nodes were last heard of {self.nodes.age_s:.0f} s ago",)
        return ()
