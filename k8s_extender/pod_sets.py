"""The pods that Jobs of many kinds make, and where their deadline stands.

Where they lie in an object, so that admission can write there what was read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .plain import JsonPath, at, count, items, mapping, text

DEADLINE = "activeDeadlineSeconds"
WORKLOAD = "Workload"
VOLCANO = "Job of Volcano"  # of the same name as batch's
MPI: JsonPath = ("spec", "mpiReplicaSpecs")


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template that train together, and where their deadline stands.

    The ``template`` of a pod is the pod itself, at the empty path. ``runs`` is how many times in a
    row the deadline lets pods run: a Job with more completions than parallelism starts pods where
    others have ended. ``gpus`` are those of one pod, where they were counted. ``made`` is the
    template of a kind that holds none, as its controller makes it; nothing is written there.
    """

    template: JsonPath
    deadline: JsonPath | None
    count: int = 1
    runs: int = 1
    gpus: int = 0
    made: Mapping[str, Any] | None = None

    def of(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """The pod template in an object."""
        return mapping(obj, *self.template) if self.made is None else self.made


@dataclass(frozen=True, slots=True)
class PodSets:
    """All pods of an object.

    ``deadline_s`` is the shortest that the object states, in seconds. ``settled`` is False where
    the object may hold pods that do not train together, so that what they run tells more.
    ``script`` is a shell text that starts the training where no container does, ``launcher`` the
    template of a pod without GPUs that does.
    """

    sets: tuple[PodSet, ...]
    deadline_s: int | None = None
    settled: bool = True
    script: str = ""
    launcher: Mapping[str, Any] | None = None


def pod_sets(kind: str, obj: Mapping[str, Any]) -> PodSets | None:
    """The pods of an object by its kind; None for a kind without known pods."""
    read = _READERS.get(kind)
    if read is None:
        return None
    sets = tuple(read(obj))
    places = dict.fromkeys(each.deadline for each in sets if each.deadline is not None)
    deadlines = [found for place in places if (found := count(obj, *place))]
    return PodSets(
        sets,
        None if kind == "Pod" else min(deadlines, default=None),
        settled=kind not in ("Pod", "Job", VOLCANO),
        script=text(obj, "spec", "entrypoint") if kind == "RayJob" else "",
        launcher=at(obj, *MPI, "Launcher", "template") if kind == "MPIJob" else None,
    )


def _pod(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    yield PodSet((), ("spec", DEADLINE))


def _job(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    spec = mapping(obj, "spec")
    pods = _or_one(count(spec, "parallelism"))
    indexed = text(spec, "completionMode") == "Indexed"
    # All pods of an indexed Job that runs them at once train together.
    together = pods if indexed and count(spec, "completions") in (None, pods) else 1
    yield PodSet(("spec", "template"), ("spec", DEADLINE), together, _runs(spec))


def _by_role(roles: JsonPath) -> Callable[[Mapping[str, Any]], Iterator[PodSet]]:
    """Kinds of Kubeflow: replicas by role, and one policy for all."""

    def read(obj: Mapping[str, Any]) -> Iterator[PodSet]:
        for name in mapping(obj, *roles):
            yield _replicated(obj, (*roles, name), ("spec", "runPolicy", DEADLINE))

    return read


def _train_job(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    """TrainJob of Kubeflow's second version: a trainer that its runtime makes pods of."""
    trainer = mapping(obj, "spec", "trainer")
    wanted = ("image", "command", "args", "env")
    container = {key: trainer[key] for key in wanted if key in trainer}
    container["resources"] = mapping(trainer, "resourcesPerNode")
    made = {"spec": {"containers": [container]}}
    pods = _or_one(count(trainer, "numNodes"))
    yield PodSet(("spec", "trainer"), ("spec", DEADLINE), pods, made=made)


def _volcano_job(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    """Volcano's Job has a field for its expected run time, and none for a deadline."""
    for i, task in enumerate(items(obj, "spec", "tasks")):
        place: JsonPath = ("spec", "tasks", i, "template")
        yield PodSet(place, None, _or_one(count(task, "replicas")))


def _job_set(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    for i, job in enumerate(items(obj, "spec", "replicatedJobs")):
        path: JsonPath = ("spec", "replicatedJobs", i, "template", "spec")
        spec = mapping(obj, *path)
        pods = _or_one(count(job, "replicas")) * _or_one(count(spec, "parallelism"))
        yield PodSet((*path, "template"), (*path, DEADLINE), pods, _runs(spec))


def _ray_job(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    cluster: JsonPath = ("spec", "rayClusterSpec")
    yield PodSet((*cluster, "headGroupSpec", "template"), ("spec", DEADLINE))
    for i in range(len(items(obj, *cluster, "workerGroupSpecs"))):
        yield _replicated(obj, (*cluster, "workerGroupSpecs", i), ("spec", DEADLINE))


def _workload(obj: Mapping[str, Any]) -> Iterator[PodSet]:
    for i, pods in enumerate(items(obj, "spec", "podSets")):
        place: JsonPath = ("spec", "podSets", i, "template")
        yield PodSet(place, ("spec", "maximumExecutionTimeSeconds"), _or_one(count(pods, "count")))


def _replicated(obj: Mapping[str, Any], path: JsonPath, deadline: JsonPath) -> PodSet:
    return PodSet((*path, "template"), deadline, _or_one(count(at(obj, *path), "replicas")))


def _runs(job: Mapping[str, Any]) -> int:
    """Of the spec of a Job: its completions over what it runs at once."""
    completions = count(job, "completions") or 1
    return -(-completions // (count(job, "parallelism") or 1))


def _or_one(number: int | None) -> int:
    return 1 if number is None else number


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[PodSet]]] = {
    "Pod": _pod,
    "Job": _job,
    "PyTorchJob": _by_role(("spec", "pytorchReplicaSpecs")),
    "MPIJob": _by_role(MPI),
    "TrainJob": _train_job,
    VOLCANO: _volcano_job,
    "RayJob": _ray_job,
    "JobSet": _job_set,
    WORKLOAD: _workload,
}
KINDS = tuple(_READERS)
