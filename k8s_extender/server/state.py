"""What decisions rest on at this moment; each part is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from ..config import Config
from ..decide import Decider
from ..nodes import NodeWatch
from ..records import GpuNode


class ServerState:
    """The configuration, the nodes and the decider in use, which is None until one is loaded."""

    def __init__(self, config: Config, nodes: NodeWatch) -> None:
        self.config = config
        self.nodes = nodes
        self.decider: Decider | None = None
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
        if self.decider is None:
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
