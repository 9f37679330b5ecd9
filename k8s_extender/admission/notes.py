"""What is written on objects and said to users."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from predictor.estimate.limits import Limit
from predictor.identify.stated import Stated
from predictor.units import duration

from ..commands import PODS
from ..config import PREFIX
from ..estimate import TypeEstimate
from ..plain import go_duration
from ..pod_sets import PodSet
from ..records import PodJob
from .forecast import DurationForecast
from .limits import EXPECTED, FILL, FILLED, OwnLimits
from .review import annotations_of

DURATION = f"{PREFIX}predicted-duration"
P95 = f"{PREFIX}predicted-p95"
STEP = f"{PREFIX}predicted-step-seconds"
BASIS = f"{PREFIX}predicted-basis"
OF_OBJECT_ONLY = frozenset((FILL, FILLED, EXPECTED))
# Longer annotations are not read as statements of a job, so that pods do not need them.
MAX_COPIED = 8192
MAX_PROBLEMS = 4


def predicted(slowest: TypeEstimate, version: str) -> dict[str, str]:
    """Annotations that tell the times on a GPU type, and what they rest on."""
    prediction = slowest.prediction
    assert prediction is not None
    median_s, high_s = slowest.total_s(0.5), slowest.total_s(0.95)
    times = {DURATION: median_s, P95: high_s}
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


def copied(obj: Mapping[str, Any]) -> dict[str, str]:
    """Our annotations on an object, for the pods that do not inherit them."""
    return {
        key: value
        for key, value in annotations_of(obj).items()
        if key.startswith(PREFIX) and key not in OF_OBJECT_ONLY and len(value) <= MAX_COPIED
    }


def pods(job: PodJob, part: PodSet) -> dict[str, str]:
    """How many pods as large as those of a part the job has, which none of them can tell."""
    many = math.ceil(job.gpus / part.gpus)
    return {PODS: str(many)} if job.stated.model and many > 1 else {}


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
    if found.slowest is None and not _addressed(stated):
        return ()
    clauses = [c for c in _clauses(found, own, asked, filled_s) if c]
    if found.slowest is None:
        first = f"nothing predicted: {'; '.join((found.reason or found.blocked, *clauses))}"
    else:
        first = "; ".join((_headline(found, found.slowest, quantile), *clauses))
    problems = [f"{one.origin}: {one.text}" for one in stated.problems[:MAX_PROBLEMS]]
    return tuple(f"precision-time: {line}" for line in (first, *problems))


def _addressed(stated: Stated) -> bool:
    """Whether the user tells us of a job: a model, or anything in a key of ours."""
    ours = {"annotation", "environment"}
    told = set(stated.origins.values()) | {problem.origin for problem in stated.problems}
    return bool(stated.model or stated.unknown_model or told & ours)


def _headline(found: DurationForecast, slowest: TypeEstimate, quantile: float) -> str:
    assert slowest.prediction is not None
    job = slowest.prediction.job
    words = f"{job.model}, {job.precision.value}, {job.gpus}x {slowest.type.product}"
    if found.limit is None:
        return f"{words}: {duration(slowest.step_s)} a step"
    high = f"{100 * quantile:g} %: {duration(found.limit.quantile_s)}"
    return f"{words}: {duration(found.limit.median_s)} ({high})"


def _clauses(
    found: DurationForecast, own: OwnLimits, asked: bool, filled_s: int | None
) -> Iterator[str]:
    if found.slowest is not None and found.limit is None:
        yield "state epochs or steps for a duration"
    if found.blocked and found.slowest is not None:
        yield f"no known node can take it ({found.blocked})"
    if filled_s is not None:
        yield _filled(found, filled_s)
    elif asked and not own.stated and found.limit is not None and found.doubt:
        yield f"no deadline: {found.doubt}"
    if own.deadline_s is not None and found.limit is not None:
        yield _judged(own.deadline_s, found.limit, found.runs)


def _filled(found: DurationForecast, filled_s: int) -> str:
    clause = f"deadline set to {go_duration(filled_s)}"
    if found.runs > 1:
        clause += f" for {found.runs} runs one after another"
    capped = found.limit is not None and found.limit.capped
    return f"{clause}, the longest that is filled in" if capped else clause


def _judged(own_s: int, limit: Limit, runs: int) -> str:
    """A word on a user's own deadline that is likely too short."""
    low = own_s < runs * limit.median_s
    return f"your deadline of {go_duration(own_s)} is below the median" if low else ""
