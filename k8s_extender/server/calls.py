"""Calls of the scheduler, and what is counted and logged of each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from predictor.service.logs import event_logger

from ..pod_name import pod_name
from ..wire import Json
from .metrics import ExtenderMetrics

_events = event_logger(__name__)


class Outcome(StrEnum):
    """What came of a call."""

    DECIDED = "decided"
    NOTHING_KNOWN = "nothing_known"  # no GPU pod, or it does not say enough of what it trains
    NOT_READY = "not_ready"
    FAILED = "failed"  # an error of ours: everything passes


@dataclass(slots=True)
class Call:
    """One call about a pod and a number of nodes; ``began`` is on the performance counter."""

    verb: str
    pod: Json
    nodes: int
    began: float
    outcome: Outcome = Outcome.DECIDED
    duration_s: float = 0.0

    def end(self) -> None:
        """Its answer is there."""
        self.duration_s = time.perf_counter() - self.began


class Ledger:
    """Counts and logs calls that have ended."""

    def __init__(self, metrics: ExtenderMetrics) -> None:
        self._metrics = metrics

    def enter(self, call: Call, passed: int, refusals: Iterable[str] = ()) -> None:
        """One call with the number of nodes that passed, and a reason for each that did not."""
        self._metrics.answered(call.verb, call.outcome, call.duration_s, call.nodes)
        reasons = Counter(refusals)
        for reason, nodes in reasons.items():
            self._metrics.refused(reason, nodes)
        pod = pod_name(call.pod)
        more = {"reasons": dict(reasons)} if reasons else {}
        _events.log(
            logging.ERROR if call.outcome is Outcome.FAILED else logging.INFO,
            "decision",
            verb=call.verb,
            outcome=call.outcome.value,
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            nodes=call.nodes,
            passed=passed,
            duration_us=round(1e6 * call.duration_s),
            **more,
        )
