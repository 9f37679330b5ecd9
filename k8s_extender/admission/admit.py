"""Admission reviews answered: what is known of a job is filled in, and nothing is ever refused."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from predictor.identify.grammar import stated_text

from ..decide import Decider
from ..estimate import lacking, ran_signature
from ..plain import mapping, text
from ..pod_sets import WORKLOAD, PodSet
from ..records import PodJob, owner_of
from ..selectors import candidates
from ..workload import template_job
from . import limits, notes, placement
from .forecast import DurationForecast, forecast
from .patch import Patch, applies
from .review import (
    AdmissionRequest,
    answer,
    gpu_pod_sets,
    left_to_owner,
    request_of,
    subject_of,
)

_log = logging.getLogger(__name__)
ClaimOrder = Callable[[AdmissionRequest, Decider], Sequence[dict[str, object]]]


class ReviewOutcome(StrEnum):
    """What came of a review."""

    PATCHED = "patched"
    OBSERVED = "observed"  # would have been patched
    UNCHANGED = "unchanged"
    NOT_READY = "not_ready"
    FAILED = "failed"  # an error of ours: the object passes as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an object is given, and the ``lines`` for its user.

    ``placed`` is the GPU type that comes first, ``order`` all of them for people, ``unplaced`` why
    none does.
    """

    patch: Sequence[dict[str, object]] = ()
    lines: tuple[str, ...] = ()
    deadline_s: int | None = None
    placed: str = ""
    order: str = ""
    unplaced: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """One review, for log, metrics and events."""

    request: AdmissionRequest
    outcome: ReviewOutcome
    decision: Decision
    duration_s: float


class Admission:
    """Answers admission reviews; ``decider`` gives the one in use, None before it is loaded.

    Only creations are looked at: a deadline is never changed on an object that exists. ``heard``
    is told of each review.
    """

    def __init__(
        self,
        decider: Callable[[], Decider | None],
        heard: Callable[[Reviewed], None] = lambda reviewed: None,
    ) -> None:
        self._decider = decider
        self._heard = heard

    def review(self, body: bytes) -> bytes:
        """The answer to a review; raises WireError for what is no review."""
        return self._review(body, lambda request, known: _told(request, known, by_namespace=False))

    def review_filling(self, body: bytes) -> bytes:
        """The same for a namespace whose label asks for deadlines, which no review tells."""
        return self._review(body, lambda request, known: _told(request, known, by_namespace=True))

    def place(self, body: bytes) -> bytes:
        """The answer for a new pod: where it had better go."""
        return self._review(body, _placed)

    def claim(self, body: bytes, ordered: ClaimOrder) -> bytes:
        """The answer for the new claim of a pod: what it lists, best first."""
        return self._review(body, lambda request, known: Decision(patch=ordered(request, known)))

    def _review(
        self, body: bytes, decide: Callable[[AdmissionRequest, Decider], Decision]
    ) -> bytes:
        began = time.perf_counter()
        request = request_of(body)
        outcome, decision = ReviewOutcome.UNCHANGED, Decision()
        answered = answer(request.uid)
        try:
            known = self._decider()
            if known is None:
                outcome = ReviewOutcome.NOT_READY
            elif request.operation == "CREATE" and not request.sub_resource:
                decision = decide(request, known)
                if known.config.mode == "observe":
                    outcome = ReviewOutcome.OBSERVED if decision.patch else outcome
                elif decision.patch and applies(request.object, decision.patch):
                    outcome = ReviewOutcome.PATCHED
                    answered = answer(request.uid, decision.patch, decision.lines)
                else:
                    answered = answer(request.uid, said=decision.lines)
        except Exception:
            _log.exception("review of %s %s failed", request.kind, request.name)
            outcome, decision, answered = ReviewOutcome.FAILED, Decision(), answer(request.uid)
        duration_s = time.perf_counter() - began
        try:
            self._heard(
                Reviewed(request=request, outcome=outcome, decision=decision, duration_s=duration_s)
            )
        except Exception:
            _log.exception("a review could not be counted")
        return answered


def _placed(request: AdmissionRequest, known: Decider) -> Decision:
    """Soft affinity for a pod that the scheduler is yet to place."""
    obj = request.object
    if request.kind != "Pod" or text(obj, "spec", "nodeName"):
        return Decision()
    job = template_job("Pod", obj, known.config, known.rules)
    if job is None:
        return Decision()
    found = placement.weights(job, obj, known)
    patch = Patch(obj)
    if (expected_s := _expected_s(request, job, obj, known)) is not None:
        limits.expect(patch, obj, request.kind, expected_s)
    if not found:
        return Decision(patch=patch.operations, unplaced=lacking(job) or "nothing to choose")
    placement.place(patch, obj, job, found)
    order = ", ".join(f"{value} {weight}" for (_, value), weight in found.items())
    first = next(value for _, value in found)
    return Decision(patch=patch.operations, placed=first, order=order)


def _told(request: AdmissionRequest, known: Decider, *, by_namespace: bool) -> Decision:
    owner = owner_of(request.object)
    if left_to_owner(request.kind, owner):
        return Decision()
    obj, config = request.object, known.config
    parts = gpu_pod_sets(request.group, request.kind, obj, config.hardware.resources)
    job = template_job(request.kind, obj, config, known.rules) if parts else None
    if job is None:
        return Decision()
    if request.kind == "Pod" and owner.kind:
        parts = tuple(replace(part, deadline=None) for part in parts)  # it would be made anew
    found = _forecast(job, known, max((part.runs for part in parts), default=1))
    patch = Patch(obj)
    own = limits.own_limits(obj, parts)
    wish_s, deadline = job.wish_s, config.deadline
    asked = limits.wanted(obj, parts, deadline, by_namespace=by_namespace, wish_s=wish_s)
    seconds = limits.deadline_to_fill(own, wish_s, found.deadline_s) if asked else own.filled_s
    filled = seconds is not None and (
        own.filled_s is not None or limits.fill(patch, parts, seconds)
    )
    told_s = seconds if filled else own.deadline_s
    if asked and told_s is not None:
        limits.pass_on(patch, obj, parts, told_s, config.deadline)
    main = max(parts, key=lambda part: part.gpus * part.count)
    expected_s = _expected_s(request, job, main.of(obj), known)
    if expected_s is None and found.limit is not None:
        expected_s = found.runs * found.limit.median_s
    if expected_s is not None and request.kind != WORKLOAD:
        limits.expect(patch, obj, request.kind, expected_s)
    _annotate(patch, request, parts, job, found, known.version)
    if own.deadline_s is None and wish_s is not None:
        own = replace(own, deadline_s=math.ceil(wish_s))
    lines = notes.lines(
        job.stated,
        found,
        own,
        asked=asked,
        filled_s=seconds if filled else None,
        quantile=config.deadline.quantile,
    )
    filled_s = seconds if filled else None
    return Decision(patch=patch.operations, lines=lines, deadline_s=filled_s)


def _expected_s(
    request: AdmissionRequest, job: PodJob, template: Mapping[str, Any], known: Decider
) -> float | None:
    """How long a job is expected to run where it had best go: by similar runs and physics."""
    if known.site is None:
        return None
    steps = known.steps(job, candidates(job, known.nodes(), known.config.hardware).types)
    best = steps[0][0].gpu if steps else None
    name, metadata = subject_of(request).name, mapping(request.object, "metadata")
    estimate = known.site.of(
        namespace=text(metadata, "namespace"),
        asked=stated_text(job.stated),
        name=name or text(metadata, "generateName").rstrip("-"),
        gpus=job.gpus,
        gpu_type="" if best is None else best.name,
        script=ran_signature(template, job.resource),
    )
    return None if estimate is None else estimate.expected_s


def _forecast(job: PodJob, known: Decider, runs: int) -> DurationForecast:
    where = candidates(job, known.nodes(), known.config.hardware)
    return forecast(known.predictor, known.config, job, where, runs=runs)


def _annotate(
    patch: Patch,
    request: AdmissionRequest,
    parts: Sequence[PodSet],
    job: PodJob,
    found: DurationForecast,
    version: str,
) -> None:
    """The times on the object; on its pod templates also what pods cannot tell by themselves."""
    times = {} if found.slowest is None else notes.predicted(found.slowest, version)
    patch.annotate(("metadata",), times)
    if request.kind == WORKLOAD:
        return  # Kueue compares its templates with those of the job
    for part in parts:
        if part.template and part.made is None:
            told = notes.pods(job, part) | notes.copied(request.object)
            patch.annotate((*part.template, "metadata"), times | told)
