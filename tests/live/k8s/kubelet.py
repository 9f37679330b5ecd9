"""What a kubelet writes on pods and the Job controller on Jobs; neither runs here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .past import stamp

KILLED = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a pod ended: ``why`` is what its containers say, ``reason`` and ``disrupted`` the pod.

    A ``why`` of None leaves its containers as they ran: the node is gone.
    """

    phase: str = "Failed"
    why: str | None = "Error"
    exit_code: int = 1
    reason: str = ""
    disrupted: str = ""
    message: str = ""


WELL = Ending(phase="Succeeded", why="Completed", exit_code=0)
ERROR = Ending()
OUT_OF_MEMORY = Ending(why="OOMKilled", exit_code=KILLED)
DEADLINE = Ending(reason="DeadlineExceeded", exit_code=KILLED)
EVICTED = Ending(
    why="ContainerStatusUnknown",
    exit_code=KILLED,
    reason="Evicted",
    disrupted="TerminationByKubelet",
)
NODE_GONE = Ending(why=None, disrupted="DeletionByPodGC")
SENT_AWAY = Ending(exit_code=KILLED)  # the scheduler or the eviction API says why


def running_status(pod: Mapping[str, Any], start_s: float) -> dict[str, Any]:
    """A pod whose containers run."""
    state = {"running": {"startedAt": stamp(start_s + 2)}}
    held = ("PodScheduled", "Initialized", "Ready", "ContainersReady")
    return {
        "phase": "Running",
        "startTime": stamp(start_s),
        "conditions": [_condition(kind, start_s + 2 * (kind in held[2:])) for kind in held],
        "containerStatuses": [_container(c, state) for c in pod["spec"]["containers"]],
        "initContainerStatuses": [
            _container(
                c,
                state if c.get("restartPolicy") == "Always" else _ended(WELL, start_s, start_s + 1),
            )
            for c in pod["spec"].get("initContainers", ())
        ],
    }


def ended_status(
    pod: Mapping[str, Any], start_s: float, end_s: float, ending: Ending
) -> dict[str, Any]:
    """A pod that ended; of several containers the first ends last."""
    status = running_status(pod, start_s)
    conditions = {c["type"]: c for c in status["conditions"]}
    for kind in ("Ready", "ContainersReady"):
        conditions[kind] = _condition(kind, end_s, holds=False)
    for told in pod["status"].get("conditions", ()):
        if told["type"] == "DisruptionTarget":  # the scheduler or the API server wrote it
            conditions["DisruptionTarget"] = {**told, "lastTransitionTime": stamp(end_s)}
    if ending.disrupted:
        conditions["DisruptionTarget"] = _condition("DisruptionTarget", end_s, ending.disrupted)
    status |= {"phase": ending.phase, "conditions": [*conditions.values()]}
    if ending.reason:
        status["reason"] = ending.reason
    if ending.why is not None:
        status["containerStatuses"] = [
            _container(c, _ended(ending, start_s + 2, end_s - 7 * i))
            for i, c in enumerate(pod["spec"]["containers"])
        ]
    return status


def failed_to_prepare(
    pod: Mapping[str, Any], start_s: float, end_s: float, ending: Ending
) -> dict[str, Any]:
    """A pod of which an init container failed: its containers never ran."""
    status = ended_status(pod, start_s, end_s, ending)
    waiting = {"waiting": {"reason": "PodInitializing"}}
    ended = _ended(ending, start_s + 1, end_s)
    never = [
        _condition(kind, start_s, holds=False)
        for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    return status | {
        "conditions": [_condition("PodScheduled", start_s), *never],
        "initContainerStatuses": [_container(c, ended) for c in pod["spec"]["initContainers"]],
        "containerStatuses": [_container(c, waiting) for c in pod["spec"]["containers"]],
    }


def refused(start_s: float) -> dict[str, Any]:
    """A pod that the kubelet did not take."""
    return {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "startTime": stamp(start_s),
        "message": "Allocate failed due to no healthy devices present",
        "conditions": [_condition("PodScheduled", start_s)],
    }


def job_status(
    start_s: float, end_s: float, *, succeeded: int, failed: int, reason: str = ""
) -> dict[str, Any]:
    """A Job that ended: complete, or failed for a reason."""
    if reason:
        kinds, why = ("FailureTarget", "Failed"), reason
    else:
        kinds, why = ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
    done = {} if reason else {"completionTime": stamp(end_s)}
    return done | {
        "startTime": stamp(start_s),
        "succeeded": succeeded,
        "failed": failed,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [_condition(kind, end_s, why) for kind in kinds],
    }


def running_job(start_s: float, *, active: int, ready: int) -> dict[str, Any]:
    """A Job whose pods are there."""
    return {
        "startTime": stamp(start_s),
        "active": active,
        "ready": ready,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


def suspended_job(at_s: float) -> dict[str, Any]:
    """A Job that is to wait."""
    return {"conditions": [_condition("Suspended", at_s, "JobSuspended")]}


def job_pods(job: Mapping[str, Any], count: int, again: int = 0) -> list[dict[str, Any]]:
    """The pods that the controller makes of a Job, or those it makes ``again``."""
    template = job["spec"]["template"]
    who = {name: job["metadata"][name] for name in ("name", "uid")}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        **who,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    index = "batch.kubernetes.io/job-completion-index"
    return [
        {
            "metadata": {
                **template["metadata"],
                "name": f"{job['metadata']['name']}-{i}-{again:05x}",
                "annotations": {**template["metadata"].get("annotations", {}), index: str(i)},
                "labels": {**template["metadata"].get("labels", {}), index: str(i)},
                "ownerReferences": [owner],
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            "spec": template["spec"],
        }
        for i in range(count)
    ]


def _condition(kind: str, at_s: float, reason: str = "", *, holds: bool = True) -> dict[str, Any]:
    told = {"type": kind, "status": str(holds), "lastTransitionTime": stamp(at_s)}
    return {**told, "reason": reason} if reason else told


def _ended(ending: Ending, start_s: float, end_s: float) -> dict[str, Any]:
    told: dict[str, Any] = {"exitCode": ending.exit_code, "reason": ending.why}
    if ending.why != "ContainerStatusUnknown":
        told |= {"startedAt": stamp(start_s), "finishedAt": stamp(end_s)}
    return {"terminated": {**told, **({"message": ending.message} if ending.message else {})}}


def _container(container: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": "running" in state,
        "started": "running" in state,
        "state": state,
    }
