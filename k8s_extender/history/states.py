"""How pods and Jobs ended, in the words that all schedulers share.

``TIMEOUT`` is a deadline (``activeDeadlineSeconds``), ``PREEMPTED`` what another pod, a person or a
node short of memory or disk sent away, ``NODE_FAIL`` a node that went, ``CANCELLED`` an object
deleted while it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from predictor.site.ended_job import JobState

from ..plain import items, mapping, text

ENDED = ("Succeeded", "Failed")  # phases
# status.reason of a pod, or the reason of its condition DisruptionTarget
_REASONS = {
    "DeadlineExceeded": JobState.TIMEOUT,
    "OOMKilled": JobState.OUT_OF_MEMORY,
    "Evicted": JobState.PREEMPTED,
    "EvictionByEvictionAPI": JobState.PREEMPTED,
    "Preempting": JobState.PREEMPTED,
    "PreemptionByScheduler": JobState.PREEMPTED,
    "DeletionByPodGC": JobState.NODE_FAIL,
    "DeletionByTaintManager": JobState.NODE_FAIL,
    "NodeLost": JobState.NODE_FAIL,
    "NodeShutdown": JobState.NODE_FAIL,
    "Shutdown": JobState.NODE_FAIL,
    "Terminated": JobState.NODE_FAIL,
    "TerminationByKubelet": JobState.NODE_FAIL,
}
# Of several pods that failed, what says most of why: the others mostly fail of it.
_TELLING = (
    JobState.OUT_OF_MEMORY,
    JobState.TIMEOUT,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.FAILED,
    JobState.CANCELLED,
)


def pod_state(pod: Mapping[str, Any], *, deleted: bool = False) -> JobState | None:
    """How a pod ended; None for one that goes on, unless it is ``deleted``."""
    phase = text(pod, "status", "phase")
    if phase not in ENDED and not deleted:
        return None
    if phase == "Succeeded":
        return JobState.COMPLETED
    reasons = (_REASONS[reason] for reason in _reasons(pod) if reason in _REASONS)
    return next(reasons, JobState.FAILED if phase == "Failed" else JobState.CANCELLED)


def job_state(job: Mapping[str, Any], *, deleted: bool = False) -> JobState | None:
    """How a Job ended, as far as the Job tells; None for one that goes on."""
    found = conditions(job)
    if "Complete" in found:
        return JobState.COMPLETED
    if "Failed" in found:
        return _REASONS.get(text(found["Failed"], "reason"), JobState.FAILED)
    return JobState.CANCELLED if deleted else None


def together(states: Iterable[JobState]) -> JobState:
    """How pods that trained together ended."""
    found = set(states)
    return next((state for state in _TELLING if state in found), JobState.COMPLETED)


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object that hold, by type."""
    held = (c for c in items(obj, "status", "conditions") if text(c, "status") == "True")
    return {text(condition, "type"): condition for condition in held}


def ended_containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What is told of each container that ended; those that others wait for come last."""
    kinds = ("containerStatuses", "initContainerStatuses")
    for status in (status for kind in kinds for status in items(pod, "status", kind)):
        for kept in ("state", "lastState"):
            if found := mapping(status, kept, "terminated"):
                yield found
                break


def unix_s(stamp: str) -> float | None:
    """An RFC 3339 time of the API in Unix seconds; None for another text."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None


def _reasons(pod: Mapping[str, Any]) -> Iterator[str]:
    yield from (text(ended, "reason") for ended in ended_containers(pod))
    yield text(pod, "status", "reason")
    yield text(conditions(pod).get("DisruptionTarget"), "reason")
