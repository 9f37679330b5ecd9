"""What is read with GET: health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .app import Page, Reply
from .metrics import ExtenderMetrics
from .state import State


def health(state: State) -> Mapping[str, Page]:
    """/livez, and /readyz which says why not: for probes and people."""

    def ready() -> Reply:
        reasons = state.why_not_ready()
        said = {"ready": not reasons, "reasons": reasons, "warnings": state.warnings()}
        return Reply(503 if reasons else 200, orjson.dumps(said))

    return {"livez": lambda: Reply(200, b'{"alive":true}'), "readyz": ready}


def metrics_page(
    metrics: ExtenderMetrics, state: State, before: Callable[[], None]
) -> Mapping[str, Page]:
    """/metrics, with gauges of the state; ``before`` counts what is not counted yet."""
    metrics.watch("nodes", "Nodes in the table.", lambda: len(state.table()))
    metrics.watch("nodes_age_seconds", "Since nodes were heard of.", lambda: state.nodes.age_s)
    metrics.watch("ready", "1 when ready.", lambda: float(not state.why_not_ready()))

    def scrape() -> Reply:
        before()
        headers = ((b"content-type", CONTENT_TYPE_LATEST.encode()),)
        return Reply(200, generate_latest(metrics.registry), headers)

    return {"metrics": scrape}
