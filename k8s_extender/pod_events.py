"""Events about pods, as `kubectl describe pod` shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from .durations import go_duration
from .pod_name import PodName
from .records import FilterResult

COMPONENT = "precision-time"
REFUSED = "PrecisionTimeNodesRefused"
UNCLEAR = "PrecisionTimeNotPredicted"
OBSERVED = "PrecisionTimeObserved"
MAX_MESSAGE_BYTES = 1024
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One thing to say of a pod; ``subject`` stays the same where only numbers change."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"]
    subject: tuple[str, ...]


def refused(counts: Mapping[str, int], result: FilterResult, *, observed: bool) -> PodEvent:
    """Why some or all nodes were refused, or would have been, with the nodes of each reason."""
    verb = "would be refused" if observed else "refused"
    nodes, total = sum(counts.values()), sum(counts.values()) + len(result.passed)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons = "; ".join(f"{count} x {text}" for text, count in ordered)
    return PodEvent(
        reason=OBSERVED if observed else REFUSED,
        message=_short(f"{nodes} of {total} nodes {verb}: {reasons}"),
        type="Normal" if result.passed or observed else "Warning",
        subject=(verb, str(bool(result.passed)), *sorted(counts)),
    )


def would(order: str, deadline_s: int | None) -> PodEvent:
    """What a new object would have been given."""
    placed = f"would prefer {order}" if order else ""
    filled = "" if deadline_s is None else f"would set a deadline of {go_duration(deadline_s)}"
    words = "; ".join(part for part in (placed, filled) if part)
    return PodEvent(OBSERVED, _short(words), "Normal", (OBSERVED, words))


def unclear(texts: tuple[str, ...]) -> PodEvent:
    """Why nothing is predicted, or what of the user's words cannot be used."""
    return PodEvent(UNCLEAR, _short("; ".join(texts)), "Normal", (UNCLEAR, *texts))


def body(event: PodEvent, pod: PodName) -> dict[str, Any]:
    """The object of the API (core/v1); the same words about a pod have the same name."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = "\n".join((pod.uid, *event.subject)).encode(errors="replace")
    start = pod.name[:MAX_NAME].rstrip(".-")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{start}.{hashlib.sha256(words).hexdigest()[:16]}",
            "namespace": pod.namespace,
        },
        "involvedObject": {
            "apiVersion": pod.api_version,
            "kind": pod.kind,
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": event.reason,
        "message": event.message,
        "type": event.type,
        "source": {"component": COMPONENT},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


def _short(text: str) -> str:
    """At most what the API server takes, cut between characters."""
    raw = text.encode(errors="replace")
    if len(raw) <= MAX_MESSAGE_BYTES:
        return raw.decode()
    return raw[: MAX_MESSAGE_BYTES - 4].decode(errors="ignore") + " ..."
