"""Admission reviews: what is known of a job by the newest state, counted and logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from predictor.service.logs import event_logger

from ..admission import Admission, Reviewed, ReviewOutcome
from .app import Handler
from .metrics import ExtenderMetrics
from .state import ServerState

_events = event_logger(__name__)

VERB = "mutate"
# A namespace, a slash and a name; what is longer comes from no API server.
MAX_SHOWN = 63 + 1 + 253


def admission_handlers(state: ServerState, metrics: ExtenderMetrics) -> Mapping[str, Handler]:
    """`mutate`, and `mutate-filling` for namespaces whose label asks for deadlines."""

    def heard(reviewed: Reviewed) -> None:
        metrics.answered(VERB, reviewed.outcome, reviewed.duration_s, None)
        _events.log(
            logging.ERROR if reviewed.outcome is ReviewOutcome.FAILED else logging.INFO,
            "review",
            verb=VERB,
            outcome=reviewed.outcome.value,
            kind=reviewed.kind[:MAX_SHOWN],
            object=reviewed.name[:MAX_SHOWN],
            review=reviewed.uid[:MAX_SHOWN],
            deadline_s=reviewed.deadline_s,
            duration_us=round(1e6 * reviewed.duration_s),
        )

    admission = Admission(lambda: state.decider, heard)
    return {VERB: admission.review, f"{VERB}-filling": admission.review_filling}
