"""Deadlines: how long a job runs on the slowest GPU type it may get, what is filled in and said.

A limit that stands in one form is never joined by a made-up one in another: what a user allowed
would end earlier. Only the user's own deadline is passed on to Kueue and to the Slurm bridge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from predictor.estimate.limits import Limit, LimitRule, time_limit, too_thin, too_wide
from predictor.identify.grammar import stated_text
from predictor.identify.keys import FIELD_OF
from predictor.identify.stated import Stated
from predictor.job.software import known_options
from predictor.job.words import key_of
from predictor.site.similar.estimate import Estimate
from predictor.units import duration

from ..config import PREFIX, Deadline
from ..decide import Decider, GpuCandidates
from ..plain import MOST, JsonPath, at, count, go_duration, text
from ..pods import DEADLINE, LED, PODS, VOLCANO, PodSet
from ..rank import PRECISION, TypeEstimate, at_longest, lacking, refusal
from ..workload import LONGEST_S, PREDICTED_FOR, PodJob
from .review import Patch, annotations_of, labels_of

# A deadline that covers more than so many times the quantile helps nobody.
MOST_TIMES = 2.0
WIDE = "what it leaves open could take more than twice as long"
NO_NODE = "no known node has a GPU that its pods may land on"


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationForecast:
    """What is known of a job before it is scheduled.

    ``slowest`` is the estimate on the slowest type that it may land on, None where nothing is
    predicted and ``reason`` says why. ``limit`` is None without a length; its times are of one run,
    its ``limit_s`` covers ``runs`` of them in a row. ``blocked`` says why no node can take the job,
    ``doubt`` why the limit must not become a deadline; else they are empty.
    """

    slowest: TypeEstimate | None = None
    limit: Limit | None = None
    reason: str = ""
    blocked: str = ""
    doubt: str = ""
    runs: int = 1

    @property
    def deadline_s(self) -> int | None:
        """Seconds that a deadline may be set to, None where it must not be set."""
        if self.limit is None or self.blocked or self.doubt:
            return None
        return round(self.limit.limit_s)

    @property
    def lack(self) -> str:
        """Why no deadline is set, where none is, and what the user can write instead."""
        why = self.reason or self.doubt or self.blocked or "steps is not stated, nor epochs"
        name = why.partition(" is not stated")[0].removesuffix(", which")
        own = name.replace("_", "-") if key_of(name) in FIELD_OF else "deadline"
        return f"{why}: annotate {PREFIX}{'options' if name in known_options() else own}"


def forecast(
    known: Decider,
    job: PodJob,
    where: GpuCandidates,
    *,
    runs: int = 1,
    kept: bool = False,
    like: Estimate | None = None,
) -> DurationForecast:
    """The forecast on the types a job may get; if ``kept``, on those refused for precision, too.

    What is known of runs ``like`` it may only make the limit longer, or too doubtful.
    """
    if reason := lacking(job):
        return DurationForecast(reason=reason)
    found = known.estimates(job, where.types)
    if not found:
        return DurationForecast(reason=NO_NODE)
    if found[0].assumed:
        return DurationForecast(reason=found[0].unclear)
    config, deadline = known.config, known.config.deadline
    refusals = {e.type: refusal(job, e, config) for e in found}
    pool = [e for e in found if refusals[e.type] is None]
    blocked = "" if pool else "; ".join(dict.fromkeys(why for why in refusals.values() if why))
    slow = PRECISION.values() if kept else ()
    pool = [e for e in found if refusals[e.type] in (None, *slow)] or list(found)
    predicted = [(e, p) for e in pool if (p := e.prediction) is not None]
    if not predicted:
        return DurationForecast(reason=pool[0].reason, blocked=blocked)
    predictions = [p for _, p in predicted]
    slowest, limit = max(predicted, key=lambda pair: pair[1].step_s)[0], None
    # One GPU type without a time, or with too wide a one, is enough.
    unknown = next((e.reason for e in pool if e.prediction is None), "")
    thin = too_thin(predictions, deadline.quantile, config.evidence)
    wide = None if like is None else too_wide(like.quantile_s, deadline.quantile, config.evidence)
    doubt = job.stated.doubtful or job.stated.misfit(job.gpus, job.gpus_per_pod) or wide or ""
    if job.unproven and not job.annotated:
        doubt = job.unproven
    least_s = like.covering_s(0.0, deadline.quantile) if like else 0.0
    if all(prediction.steps is not None for prediction in predictions):
        rule = LimitRule(  # so many runs, each with its start-up and checkpoints
            quantile=deadline.quantile,
            startup_s=runs * deadline.startup_s,
            checkpoint_share=runs * (1 + deadline.checkpoint_share) - 1,
            rounding_s=deadline.rounding_s,
            floor_s=max(deadline.floor_s, math.ceil(runs * least_s)),
            cap_s=deadline.cap_s,
        )
        limit = time_limit(predictions, rule)
        slowest = next(e for e, p in predicted if p is limit.slowest)
        open_precision = any(a.field == "precision" for p in predictions for a in p.assumptions)
        if (thin or open_precision) and not unknown:  # it counts as it takes the longest
            ends = (one for e, _ in predicted for one in at_longest(known.predictor, e))
            open_ = [one.prediction for one in ends if one.prediction is not None]
            longest = time_limit(open_, rule)
            near = longest.quantile_s <= MOST_TIMES * limit.quantile_s
            thin_ends = too_thin(open_, deadline.quantile, config.evidence)
            thin = thin_ends or (None if near else thin or WIDE)
            if near and longest.limit_s > limit.limit_s:
                limit = replace(limit, limit_s=longest.limit_s, capped=longest.capped)
        doubt = doubt or unknown or thin or ""
        # A deadline that we cut must not make the filter refuse the very nodes it was made for.
        totals = [runs * (e.total_s(config.filter.deadline_quantile) or 0.0) for e in pool]
        if not doubt and max(totals) > limit.limit_s:
            doubt = f"{go_duration(limit.limit_s)} would not be enough"
        if limit.limit_s > LONGEST_S:
            long = duration(limit.limit_s)
            doubt = f"it would be {long}, more than a year: check steps and epochs"
    if not where.certain:
        doubt = "no node with such a GPU is known"
    return DurationForecast(slowest=slowest, limit=limit, blocked=blocked, doubt=doubt, runs=runs)


# How we know our own deadline again, where the API server asks a second time.
FILLED = f"{PREFIX}filled-deadline-seconds"
FILL = f"{PREFIX}fill-deadline"
UNFILLED = f"{PREFIX}why-no-deadline"
EXPECTED = f"{PREFIX}expected-run-time"
# Proposed for KAI, which reads it nowhere yet; so does Volcano with its runningEstimate.
KAI_QUEUE = "kai.scheduler/queue"
KAI_EXPECTED = "kai.scheduler/expected-runtime"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
# The Slurm bridge of Slinky reads annotations of the outermost object; a bare number is minutes.
SLINKY = "slurmjob.slinky.slurm.net/"
SLINKY_LIMIT = f"{SLINKY}timelimit"
SLINKY_OLD_LIMIT = "slinky.slurm.net/timelimit"
SLINKY_SCHEDULER = "slurm-bridge-scheduler"
METADATA: JsonPath = ("metadata",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimits:
    """Limits on an object as it came.

    ``stated`` holds where the user set a deadline, ``deadline_s`` is the shortest in seconds where
    it can be read; ``elsewhere`` where the user set one for Kueue or the Slurm bridge; ``filled_s``
    is the deadline that we have set before.
    """

    stated: bool
    deadline_s: int | None
    elsewhere: bool
    filled_s: int | None


def own_limits(obj: Mapping[str, Any], parts: Sequence[PodSet]) -> OwnLimits:
    """The limits that an object states."""
    annotations = annotations_of(obj)
    filled_s = count(annotations, FILLED)
    places = [part.deadline for part in parts if part.deadline is not None]
    places += [(*part.template, "spec", DEADLINE) for part in parts if part.made is None]
    found = [at(obj, *place) for place in dict.fromkeys(places)]
    users = [value for value in found if value is not None and value != filled_s]
    readable = [value for value in users if type(value) is int and 0 < value <= MOST]
    ours = (None, *([] if filled_s is None else [str(filled_s), _minutes(filled_s)]))
    told = [annotations.get(SLINKY_LIMIT), annotations.get(SLINKY_OLD_LIMIT)]
    told.append(labels_of(obj).get(KUEUE_LIMIT))
    return OwnLimits(
        stated=bool(users),
        deadline_s=min(readable, default=None),
        elsewhere=any(value not in ours for value in told),
        filled_s=filled_s if len(found) > found.count(None) and not users else None,
    )


def fill(patch: Patch, parts: Sequence[PodSet], seconds: int) -> bool:
    """Add the deadline to an object; False where there is no place for it."""
    places = dict.fromkeys(part.deadline for part in parts if part.deadline is not None)
    added = [place for place in places if patch.put(place, seconds)]
    if added:
        patch.annotate(METADATA, {FILLED: str(seconds)})
    return bool(added)


def expect(patch: Patch, obj: Mapping[str, Any], kind: str, seconds: float) -> None:
    """Tell how long a job is expected to run, in our words and those of KAI and Volcano."""
    told = {EXPECTED: go_duration(seconds)}
    if KAI_QUEUE in labels_of(obj):
        told[KAI_EXPECTED] = told[EXPECTED]
    patch.annotate(METADATA, told)
    if kind == VOLCANO:
        patch.put(("spec", "runningEstimate"), told[EXPECTED])


def pass_on(
    patch: Patch, obj: Mapping[str, Any], parts: Sequence[PodSet], seconds: int, deadline: Deadline
) -> None:
    """Tell Kueue and the Slurm bridge of a deadline, where the object is theirs."""
    if not any(part.deadline for part in parts):
        return
    annotations = annotations_of(obj)
    schedulers = {text(part.of(obj), "spec", "schedulerName") for part in parts}
    bridged = SLINKY_SCHEDULER in schedulers or any(key.startswith(SLINKY) for key in annotations)
    if deadline.kueue and KUEUE_QUEUE in labels_of(obj):
        patch.put((*METADATA, "labels", KUEUE_LIMIT), str(seconds))
    if deadline.slinky and bridged and SLINKY_OLD_LIMIT not in annotations:
        patch.annotate(METADATA, {SLINKY_LIMIT: _minutes(seconds)})


def _minutes(seconds: int) -> str:
    return str(math.ceil(seconds / 60))


DURATION = f"{PREFIX}predicted-duration"
P95 = f"{PREFIX}predicted-p95"
STEP = f"{PREFIX}predicted-step-seconds"
BASIS = f"{PREFIX}predicted-basis"
OF_OBJECT_ONLY = frozenset((FILL, FILLED, EXPECTED, UNFILLED))
# Longer annotations are not read as statements of a job, so that pods do not need them.
MAX_COPIED = 8192
MAX_PROBLEMS = 4


def predicted(slowest: TypeEstimate, version: str) -> dict[str, str]:
    """Annotations that tell the times on a GPU type, and what they rest on."""
    prediction = slowest.prediction
    assert prediction is not None
    times = {DURATION: slowest.total_s(0.5), P95: slowest.total_s(0.95)}
    words = {
        "tier": prediction.tier.value,
        "predictor": version,
        "gpu": "-".join(slowest.type.product.split()),
        "gpus": prediction.job.gpus,
    }
    return {
        **{name: go_duration(seconds) for name, seconds in times.items() if seconds is not None},
        STEP: f"{prediction.step_s:.6g}",
        BASIS: " ".join(f"{name}={value}" for name, value in words.items() if value),
    }


def for_pods(obj: Mapping[str, Any], job: PodJob, part: PodSet) -> dict[str, str]:
    """Our annotations on an object, for the pods that do not inherit them.

    Also what none of them can tell: how many pods as large as those of a part the job has, and what
    it trains where another program starts that.
    """
    many, told = math.ceil(job.gpus / part.gpus), dict[str, str]()
    if job.stated.model:
        told |= {PODS: str(many)} if many > 1 else {}
        facts = stated_text(replace(job.stated, alone=False))  # of other pods than its own
        told |= {PREDICTED_FOR: facts} if text(obj, "kind") in LED else {}
    return told | {
        key: value
        for key, value in annotations_of(obj).items()
        if key.startswith(PREFIX) and key not in OF_OBJECT_ONLY and len(value) <= MAX_COPIED
    }


def lines(
    stated: Stated,
    found: DurationForecast,
    own: OwnLimits,
    *,
    asked: bool,
    filled_s: int | None,
    quantile: float,
) -> tuple[str, ...]:
    """Lines for the user; none for a pod of which nothing is said."""
    clauses = [*_clauses(found, own, asked, filled_s)]
    if found.slowest is not None and found.slowest.prediction is not None:
        job, limit = found.slowest.prediction.job, found.limit
        time = f"{duration(found.slowest.step_s)} a step"
        if limit is not None:
            high = f"{100 * quantile:g} %: {duration(limit.quantile_s)}"
            time = f"{duration(limit.median_s)} ({high})"
        words = f"{job.model}, {job.precision.value}, {job.gpus}x {found.slowest.type.product}"
        first = "; ".join((f"{words}: {time}", *clauses))
    else:
        # Only where the user tells us of a job: a model, or anything in a key of ours.
        told = set(stated.origins.values()) | {problem.origin for problem in stated.problems}
        if not (stated.model or stated.unknown_model or told & {"annotation", "environment"}):
            return ()
        first = f"nothing predicted: {'; '.join((found.lack, *clauses))}"
    problems = [f"{one.origin}: {one.text}" for one in stated.problems[:MAX_PROBLEMS]]
    return tuple(f"precision-time: {line}" for line in (first, *problems))


def _clauses(
    found: DurationForecast, own: OwnLimits, asked: bool, filled_s: int | None
) -> Iterator[str]:
    limit = found.limit
    if found.slowest is not None and limit is None:
        yield "state epochs or steps for a duration"
    if found.blocked and found.slowest is not None:
        yield f"no known node can take it ({found.blocked})"
    if filled_s is not None:
        in_turn = f" for {found.runs} runs one after another" if found.runs > 1 else ""
        capped = ", the longest that is filled in" if limit is not None and limit.capped else ""
        yield f"deadline set to {go_duration(filled_s)}{in_turn}{capped}"
    elif asked and not own.stated and limit is not None and found.doubt:
        yield f"no deadline: {found.lack}"
    if limit is not None and (own.deadline_s or math.inf) < found.runs * limit.median_s:
        kept = go_duration(own.deadline_s or 0)
        yield f"probably takes longer than your deadline of {kept}, which stays as you set it"
