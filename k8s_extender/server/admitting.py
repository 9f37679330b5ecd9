"""Admission reviews: what is known of a job by the newest state, counted and logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from predictor.service.logs import event_logger

from ..admission import Admission, Reviewed, ReviewOutcome
from ..writeback import Writeback
from .app import Handler
from .metrics import ExtenderMetrics
from .state import ServerState

_events = event_logger(__name__)

VERB = "mutate"
# A namespace, a slash and a name; what is longer comes from no API server.
MAX_SHOWN = 63 + 1 + 253


def admission_handlers(
    state: ServerState, metrics: ExtenderMetrics, writeback: Writeback | None = None
) -> Mapping[str, Handler]:
    """`mutate`, `mutate-filling` where a namespace asks for deadlines, and `place` for pods."""

    def heard(reviewed: Reviewed) -> None:
        metrics.answered(VERB, reviewed.outcome, reviewed.duration_s, None)
        if not reviewed.unseen:
            metrics.reviewed(reviewed.placed, reviewed.unplaced, reviewed.deadline_s)
            if writeback is not None and state.config.annotate.events:
                writeback.reviewed(reviewed)
        _events.log(
            logging.ERROR if reviewed.outcome is ReviewOutcome.FAILED else logging.INFO,
            "review",
            verb=VERB,
            outcome=reviewed.outcome.value,
            kind=reviewed.kind[:MAX_SHOWN],
            object=reviewed.name[:MAX_SHOWN],
            review=reviewed.uid[:MAX_SHOWN],
            deadline_s=reviewed.deadline_s,
            placed=reviewed.placed,
            duration_us=round(1e6 * reviewed.duration_s),
        )

    admission = Admission(lambda: state.decider, heard)
    return {
        VERB: admission.review,
        f"{VERB}-filling": admission.review_filling,
        "place": admission.place,
    }
