"""The limits a user stated on an object, and those we fill in beside them.

A limit that stands in one form is never joined by a made-up one in another: what a user allowed
would end earlier. Only the user's own deadline is passed on to Kueue and to the Slurm bridge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config import PREFIX, Deadline
from ..plain import JsonPath, at, count, go_duration, text
from ..pod_sets import DEADLINE, VOLCANO, PodSet
from .patch import Patch
from .review import annotations_of, labels_of

# How we know our own deadline again, where the API server asks a second time.
FILLED = f"{PREFIX}filled-deadline-seconds"
FILL = f"{PREFIX}fill-deadline"
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
MAX_DEADLINE_S = 2**31 - 1
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
    annotations, labels = annotations_of(obj), labels_of(obj)
    filled_s = count(annotations, FILLED)
    places = [part.deadline for part in parts if part.deadline is not None]
    places += [(*part.template, "spec", DEADLINE) for part in parts if part.made is None]
    found = [at(obj, *place) for place in dict.fromkeys(places)]
    users = [value for value in found if value is not None and value != filled_s]
    readable = [value for value in users if type(value) is int and 0 < value <= MAX_DEADLINE_S]
    ours = (None, *([] if filled_s is None else [str(filled_s), _minutes(filled_s)]))
    told = (
        labels.get(KUEUE_LIMIT),
        annotations.get(SLINKY_LIMIT),
        annotations.get(SLINKY_OLD_LIMIT),
    )
    return OwnLimits(
        stated=bool(users),
        deadline_s=min(readable, default=None),
        elsewhere=any(value not in ours for value in told),
        filled_s=filled_s if len(found) > found.count(None) and not users else None,
    )


def wanted(
    obj: Mapping[str, Any],
    parts: Iterable[PodSet],
    deadline: Deadline,
    *,
    by_namespace: bool,
    wish_s: float | None,
) -> bool:
    """Whether a deadline is asked for: by policy, by the namespace's label, by annotation."""
    holders = (obj, *(part.of(obj) for part in parts))
    said = {annotations_of(holder).get(FILL, "").lower() for holder in holders}
    if deadline.mode == "off" or "false" in said:
        return False
    return deadline.mode == "always" or by_namespace or "true" in said or wish_s is not None


def deadline_to_fill(own: OwnLimits, wish_s: float | None, forecast_s: int | None) -> int | None:
    """The seconds to fill in, None where a user's own limit or a doubt stands in the way.

    What the user wishes is what is filled: whatever is predicted, it is neither cut nor exceeded.
    """
    if own.filled_s is not None:
        return own.filled_s
    if own.stated or own.elsewhere:
        return None
    return forecast_s if wish_s is None else math.ceil(wish_s)


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
    if deadline.kueue and KUEUE_QUEUE in labels_of(obj):
        patch.put((*METADATA, "labels", KUEUE_LIMIT), str(seconds))
    if deadline.slinky and _bridged(obj, parts) and SLINKY_OLD_LIMIT not in annotations_of(obj):
        patch.annotate(METADATA, {SLINKY_LIMIT: _minutes(seconds)})


def _bridged(obj: Mapping[str, Any], parts: Sequence[PodSet]) -> bool:
    schedulers = {text(part.of(obj), "spec", "schedulerName") for part in parts}
    annotated = any(key.startswith(SLINKY) for key in annotations_of(obj))
    return annotated or SLINKY_SCHEDULER in schedulers


def _minutes(seconds: int) -> str:
    return str(math.ceil(seconds / 60))
