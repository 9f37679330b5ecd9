"""The names a scrape of the extender shows."""

from __future__ import annotations

from collections.abc import Mapping

from k8s_extender.config import Config
from k8s_extender.records import GpuNode
from k8s_extender.server.metrics import PREFIX, ExtenderMetrics
from k8s_extender.server.pages import metrics_page
from k8s_extender.server.state import State

ENDINGS = {"counter": "_total", "info": "_info"}


class NoNodes:
    """A node table of a cluster without nodes."""

    table: Mapping[str, GpuNode] = {}
    synced = True
    age_s = 0.0
    error = ""

    def start(self) -> None: ...

    def use(self, config: Config) -> None: ...

    def stop(self) -> None: ...


def shown_names() -> set[str]:
    """The names of our own metrics, without the endings of a histogram's parts."""
    metrics = ExtenderMetrics()
    metrics_page(metrics, State(Config(), NoNodes()), lambda: None)
    found = metrics.registry.collect()
    names = {family.name + ENDINGS.get(family.type, "") for family in found}
    return {name for name in names if name.startswith(PREFIX)}
