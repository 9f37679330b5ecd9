"""Admission: placement, predictions and deadlines filled in where training jobs are created.

What is known is filled in, and nothing is ever refused. `policy.yaml` does the part of the deadline
without a webhook.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from predictor.service.process import DeadlineError, time_bound

from ..config import PREFIX
from ..decide import Decider
from ..plain import JsonPath, items, owner_of, text
from ..pods import KINDS, WORKLOAD
from ..rank import lacking
from ..workload import PodJob, template_job
from . import limits, review
from .review import AdmissionRequest, Patch

_log = logging.getLogger(__name__)
ClaimOrder = Callable[[AdmissionRequest, Decider], Sequence[dict[str, object]]]


class Outcome(StrEnum):
    """What came of a review or a call of the scheduler."""

    DECIDED = "decided"
    PATCHED = "patched"
    OBSERVED = "observed"  # would have been patched
    UNCHANGED = "unchanged"
    NOTHING_KNOWN = "nothing_known"  # no GPU pod, or it does not say enough of what it trains
    NOT_READY = "not_ready"
    LATE = "late"  # it took longer than it may: everything passes as it came
    FAILED = "failed"  # an error of ours: the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an object is given, and the ``lines`` for its user.

    ``placed`` is the GPU type that comes first, ``order`` tells all, ``unplaced`` why none does.
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
    outcome: Outcome
    decision: Decision
    duration_s: float


@dataclass(frozen=True, slots=True)
class Admission:
    """Answers admission reviews; ``decider`` gives the one in use, None before it is loaded.

    Only creations are looked at: a deadline is never changed on an object that exists. ``heard``
    is told of each review, and raises nothing.
    """

    decider: Callable[[], Decider | None]
    heard: Callable[[Reviewed], None] = lambda reviewed: None

    def review(self, body: bytes, *, by_namespace: bool = False) -> bytes:
        """The answer to a review; raises WireError for what is no review.

        ``by_namespace`` where the namespace's label asks for deadlines, which no review tells.
        """
        return self._review(body, partial(_filled_in, by_namespace=by_namespace))

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
        request = review.request_of(body)
        outcome, decision = Outcome.UNCHANGED, Decision()
        answered = review.answer(request.uid)
        try:
            known = self.decider()
            if known is None:
                outcome = Outcome.NOT_READY
            elif request.operation == "CREATE" and not request.sub_resource:
                with time_bound(review.BUDGET_S):
                    decision = decide(request, known)
                acts = known.config.mode == "place"
                if decision.patch:
                    outcome = Outcome.PATCHED if acts else Outcome.OBSERVED
                if acts:
                    answered = review.answer(request.uid, decision.patch, decision.lines)
        except DeadlineError:
            outcome = Outcome.LATE
        except Exception:
            _log.exception("review of %s %s failed", request.kind, request.name)
            outcome, decision, answered = Outcome.FAILED, Decision(), review.answer(request.uid)
        took_s = time.perf_counter() - began
        self.heard(Reviewed(request=request, outcome=outcome, decision=decision, duration_s=took_s))
        return answered


def _placed(request: AdmissionRequest, known: Decider) -> Decision:
    """Soft affinity for a pod that the scheduler is yet to place."""
    obj = request.object
    if request.kind != "Pod" or text(obj, "spec", "nodeName"):
        return Decision()
    job = known.job_of(obj)
    if job is None:
        return Decision()
    found, patch = weights(job, obj, known), Patch(obj)
    like = known.like(job, obj, review.subject_of(request).name)
    if like is not None:
        limits.expect(patch, obj, request.kind, like.expected_s)
    if not found:
        return Decision(patch=patch.operations, unplaced=lacking(job) or "nothing to choose")
    place(patch, obj, job, found)
    order = ", ".join(f"{value} {weight}" for (_, value), weight in found.items())
    return Decision(patch=patch.operations, placed=next(iter(found))[1], order=order)


def _filled_in(request: AdmissionRequest, known: Decider, *, by_namespace: bool) -> Decision:
    """The deadline where one is asked for; predictions on the object and its pod templates."""
    obj, config, owner = request.object, known.config, owner_of(request.object)
    if review.left_to_owner(request.kind, owner):
        return Decision()
    parts = review.gpu_pod_sets(request.group, request.kind, obj, config.hardware.resources)
    job = template_job(request.kind, obj, config, known.rules) if parts else None
    if job is None:
        return Decision()
    if request.kind == "Pod" and owner.kind:
        parts = tuple(replace(part, deadline=None) for part in parts)  # it would be made anew
    runs, patch = max(part.runs for part in parts), Patch(obj)
    kept = request.kind != "Job"  # whose deadline follows its pods
    like = known.like(job, obj, review.subject_of(request).name)
    found = limits.forecast(known, job, known.candidates(job), runs=runs, kept=kept, like=like)
    own, wish_s, deadline = limits.own_limits(obj, parts), job.wish_s, config.deadline
    # A deadline is asked for by policy, by the namespace's label or by annotation.
    holders = (obj, *(part.of(obj) for part in parts))
    said = {review.annotations_of(holder).get(limits.FILL, "").lower() for holder in holders}
    asked = deadline.mode == "always" or by_namespace or "true" in said or wish_s is not None
    asked = asked and deadline.mode != "off" and "false" not in said
    filled_s = own.filled_s
    if asked and filled_s is None and not own.stated and not own.elsewhere:
        # What the user wishes is filled as it is, whatever is predicted.
        seconds = found.deadline_s if wish_s is None else math.ceil(wish_s)
        if seconds is not None and limits.fill(patch, parts, seconds):
            filled_s = seconds
        elif seconds is None and job.stated.model and any(part.deadline for part in parts):
            patch.annotate(("metadata",), {limits.UNFILLED: found.lack})
    told_s = own.deadline_s if filled_s is None else filled_s
    if asked and told_s is not None:
        limits.pass_on(patch, obj, parts, told_s, deadline)
    expected_s = None if like is None else like.expected_s
    if like is None and found.limit is not None:
        expected_s = found.runs * found.limit.median_s
    times = {} if found.slowest is None else limits.predicted(found.slowest, known.version)
    if request.kind != WORKLOAD and expected_s is not None:
        limits.expect(patch, obj, request.kind, expected_s)
    patch.annotate(("metadata",), times)
    for part in parts if request.kind != WORKLOAD else ():  # Kueue compares with the job's
        if part.template and part.made is None:
            told = limits.for_pods(obj, job, part)
            patch.annotate((*part.template, "metadata"), times | told)
    if own.deadline_s is None and wish_s is not None:
        own = replace(own, deadline_s=math.ceil(wish_s))
    lines = limits.lines(
        job.stated, found, own, asked=asked, filled_s=filled_s, quantile=deadline.quantile
    )
    return Decision(patch=patch.operations, lines=lines, deadline_s=filled_s)


# Soft placement: preferred node affinity by predicted speed, written once on a new pod. A preferred
# term never blocks a pod, and never evicts another one. The scheduler divides the sum of a node's
# weights by the largest, so only ratios count, and doubles it beside the other scores: the next
# best type loses 120 points, more than an idle node of it gains by NodeResourcesFit (at most 100)
# and NodeResourcesBalancedAllocation. With 100, pods left a type that still had room.
PLACED = f"{PREFIX}placement"
BEST = 100
FACTOR = 0.4
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_TERMS: JsonPath = ("spec", "affinity", "nodeAffinity", PREFERRED)
POD_TERMS: JsonPath = ("spec", "affinity", "podAffinity", PREFERRED)
# What the pods of one job have in common, the outermost first.
GANGS: tuple[str, ...] = tuple(KINDS["gangs"])
Weights = Mapping[tuple[str, str], int]


def weights(job: PodJob, pod: Mapping[str, Any], known: Decider) -> Weights:
    """The weight of each label and value that names a GPU type, the best first.

    Empty where there is nothing to choose, or where the user's own preference chooses: a pod that
    says nothing of its training, a single type, terms about the same label.
    """
    where = known.candidates(job)
    if not where.certain or PLACED in review.annotations_of(pod):
        return {}
    found: dict[tuple[str, str], int] = {}
    for place, step in enumerate(known.steps(job, where.types)):
        for kind in sorted(step, key=lambda kind: kind.product):
            if kind.label:
                weight = max(1, round(BEST * FACTOR**place))
                found.setdefault((kind.label, kind.product), weight)
    users = {*job.node_selector}
    for term in items(pod, *NODE_TERMS):
        users |= {text(one, "key") for one in items(term, "preference", "matchExpressions")}
    if len(set(found.values())) < 2 or {key for key, _ in found} & users:
        return {}
    if known.config.placement.single_term:
        return {label: weight for label, weight in found.items() if weight == BEST}
    return found


def place(patch: Patch, pod: Mapping[str, Any], job: PodJob, found: Weights) -> None:
    """Add the terms, and for the pods of one job to go where the first of them went."""
    alike: dict[tuple[str, int], list[str]] = {}  # one term each: every node is held to every term
    for (key, value), weight in found.items():
        alike.setdefault((key, weight), []).append(value)
    terms = []
    for (key, weight), values in alike.items():
        wanted = {"key": key, "operator": "In", "values": values}
        terms.append({"weight": weight, "preference": {"matchExpressions": [wanted]}})
    if not patch.extend(NODE_TERMS, terms):
        return
    said = ",".join(f"{value}={weight}" for (_, value), weight in found.items())
    patch.annotate(("metadata",), {PLACED: said})
    labels = review.labels_of(pod)
    gang = next(({key: labels[key]} for key in GANGS if key in labels), None)
    if job.pods > 1 and gang:
        selector, topology = {"matchLabels": gang}, next(key for key, _ in found)
        beside = {"labelSelector": selector, "topologyKey": topology}
        patch.extend(POD_TERMS, [{"weight": BEST, "podAffinityTerm": beside}])
