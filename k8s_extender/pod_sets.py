"""The pods that a Job, PyTorchJob, JobSet, RayJob or Kueue Workload makes, by their templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .plain import count, items, mapping, text


@dataclass(frozen=True, slots=True)
class PodSet:
    """``count`` pods of one template that train together."""

    template: Mapping[str, Any]
    count: int


@dataclass(frozen=True, slots=True)
class PodSets:
    """All pods of an object.

    ``deadline_s`` is what the object states, in seconds. ``settled`` is False where the object may
    hold pods that do not train together, so that what they run tells more. ``script`` is a shell
    text that starts the training where no container does.
    """

    sets: tuple[PodSet, ...]
    deadline_s: int | None = None
    settled: bool = True
    script: str = ""


def pod_sets(kind: str, obj: Mapping[str, Any]) -> PodSets | None:
    """The pods of an object by its kind; None for a kind without known pods."""
    read = _READERS.get(kind)
    return None if read is None else read(obj)


def _pod(obj: Mapping[str, Any]) -> PodSets:
    return PodSets((PodSet(obj, 1),), settled=False)


def _job(obj: Mapping[str, Any]) -> PodSets:
    pods = _together(mapping(obj, "spec"))
    return PodSets(
        (PodSet(mapping(obj, "spec", "template"), pods),),
        count(obj, "spec", "activeDeadlineSeconds"),
        settled=False,
    )


def _together(spec: Mapping[str, Any]) -> int:
    """Pods of a Job that train together: all of an indexed Job that runs them at once, else 1."""
    pods = _or_one(count(spec, "parallelism"))
    indexed = text(spec, "completionMode") == "Indexed"
    return pods if indexed and count(spec, "completions") in (None, pods) else 1


def _pytorch_job(obj: Mapping[str, Any]) -> PodSets:
    specs = mapping(obj, "spec", "pytorchReplicaSpecs")
    return PodSets(
        tuple(_replicated(spec) for spec in specs.values()),
        count(obj, "spec", "runPolicy", "activeDeadlineSeconds"),
    )


def _ray_job(obj: Mapping[str, Any]) -> PodSets:
    cluster = mapping(obj, "spec", "rayClusterSpec")
    head = PodSet(mapping(cluster, "headGroupSpec", "template"), 1)
    workers = (_replicated(group) for group in items(cluster, "workerGroupSpecs"))
    return PodSets(
        (head, *workers),
        count(obj, "spec", "activeDeadlineSeconds"),
        script=text(obj, "spec", "entrypoint"),
    )


def _job_set(obj: Mapping[str, Any]) -> PodSets:
    sets = tuple(_replicated_jobs(obj))
    jobs = (mapping(job, "template", "spec") for job in items(obj, "spec", "replicatedJobs"))
    deadlines = [found for job in jobs if (found := count(job, "activeDeadlineSeconds"))]
    return PodSets(sets, min(deadlines, default=None))


def _replicated_jobs(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    for job in items(obj, "spec", "replicatedJobs"):
        spec = mapping(job, "template", "spec")
        pods = _or_one(count(job, "replicas")) * _or_one(count(spec, "parallelism"))
        yield PodSet(mapping(spec, "template"), pods)


def _workload(obj: Mapping[str, Any]) -> PodSets:
    sets = items(obj, "spec", "podSets")
    return PodSets(
        tuple(PodSet(mapping(s, "template"), _or_one(count(s, "count"))) for s in sets),
        count(obj, "spec", "maximumExecutionTimeSeconds"),
    )


def _replicated(spec: Any) -> PodSet:
    return PodSet(mapping(spec, "template"), _or_one(count(spec, "replicas")))


def _or_one(number: int | None) -> int:
    return 1 if number is None else number


_READERS: Mapping[str, Callable[[Mapping[str, Any]], PodSets]] = {
    "Pod": _pod,
    "Job": _job,
    "PyTorchJob": _pytorch_job,
    "RayJob": _ray_job,
    "JobSet": _job_set,
    "Workload": _workload,
}
KINDS = tuple(_READERS)
