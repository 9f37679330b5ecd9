"""Pods and Jobs as the API server holds them, with what kubelet and controllers write on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

BEGAN_S = 1_750_000_000
COMMAND = ["torchrun", "train.py", "--arch", "resnet50", "--amp", "--batch-size", "256"]


def stamp(minute: float) -> str:
    """A time some minutes after the beginning, as the API writes it."""
    moment = datetime.fromtimestamp(BEGAN_S + round(60 * minute), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_s(minute: float) -> float:
    return BEGAN_S + 60.0 * minute


def owner(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def condition(kind: str, minute: float, reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": stamp(minute)}


def spec(gpus: int, **more: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {"containers": [{"name": "main", "command": COMMAND, "resources": resources}], **more}


def pod(
    name: str,
    *,
    gpus: int = 8,
    node: str = "a100-0",
    ran: tuple[float, float | None] = (1, 61),
    phase: str = "Succeeded",
    reason: str = "",
    ended_by: str = "",
    message: str = "",
    owned: dict[str, Any] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A pod that was created at minute 0 and ran for some minutes, or still runs."""
    begin, end = ran
    state: dict[str, Any] = {"running": {"startedAt": stamp(begin)}}
    if end is not None:
        state = {"terminated": {"finishedAt": stamp(end), "reason": ended_by, "message": message}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": labels or {},
            "creationTimestamp": stamp(0),
            "annotations": annotations or {},
            "ownerReferences": [owned] if owned else [],
        },
        "spec": spec(gpus, nodeName=node, **more),
        "status": {
            "phase": phase,
            "reason": reason,
            "startTime": stamp(begin),
            "conditions": conditions or [],
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def running(name: str, **more: Any) -> dict[str, Any]:
    return pod(name, **{"phase": "Running", "ran": (1, None), **more})


def job(
    name: str,
    *,
    gpus: int = 8,
    pods: int = 1,
    ended: dict[str, Any] | None = None,
    owned: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    deadline_s: int | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A Job that was created at minute 0; ``ended`` is its condition, if it has ended."""
    together = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    limit = {} if deadline_s is None else {"activeDeadlineSeconds": deadline_s}
    done = ended is not None and ended["type"] == "Complete"
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": labels or {},
            "creationTimestamp": stamp(0),
            "annotations": annotations or {},
            "ownerReferences": [owned] if owned else [],
            **metadata,
        },
        "spec": {**together, **limit, "template": {"metadata": {}, "spec": spec(gpus)}},
        "status": {
            "startTime": stamp(0.5),
            "conditions": [ended] if ended else [],
            **({"completionTime": ended["lastTransitionTime"]} if ended and done else {}),
        },
    }


def of_job(name: str) -> dict[str, Any]:
    """The owner of a Job's pods."""
    return owner("Job", name)
