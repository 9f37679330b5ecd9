"""GPU-seconds of nodes, Jobs and pods, added up from their JSON without the product's reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windows import Window

GPU = "nvidia.com/gpu"
SINCE_H, UNTIL_H = 6, 30  # the period, in hours after the nodes were created
QUEUE = "kueue.x-k8s.io/queue-name"
INDEX = "batch.kubernetes.io/job-completion-index"
TYPES = {
    "NVIDIA-A100-SXM4-80GB": "a100-sxm4-80gb",
    "Tesla-V100-SXM2-32GB": "v100-sxm2-32gb",
    "Tesla-T4": "t4-16gb",
    "NVIDIA-LAB-SAMPLE-900": "NVIDIA-LAB-SAMPLE-900",
}
OUTCOMES = {
    "DeadlineExceeded": "timed_out",
    "Evicted": "preempted",
    "EvictionByEvictionAPI": "preempted",
    "PreemptionByScheduler": "preempted",
}
WORST = ("timed_out", "preempted", "failed", "completed")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What held GPUs at one time: an attempt of a Job, or a pod that no Job made.

    ``held_s`` are the GPU-seconds that its pods held, ``gpu_s`` those from the first to the last.
    """

    name: str
    account: str
    user: str
    partition: str
    gpu_type: str
    outcome: str
    gpus: int
    start_s: int
    end_s: int
    gpu_s: int
    held_s: int


def window_of(objects: Iterable[Object]) -> Window:
    """The day of a site, which begins some hours after its nodes."""
    began_s = min(_at(o["metadata"]["creationTimestamp"]) for o in objects if o["kind"] == "Node")
    return Window(since_s=began_s + 3600 * SINCE_H, until_s=began_s + 3600 * UNTIL_H)


def rows_of(objects: Sequence[Object], window: Window) -> list[Row]:
    """Everything that held GPUs in the window, if only for a moment."""
    types = {
        o["metadata"]["name"]: TYPES[o["metadata"]["labels"][f"{GPU}.product"]]
        for o in objects
        if o["kind"] == "Node"
    }
    rows = (_row(job, pods, types, window) for job, pods in _attempts(objects))
    return [
        row
        for row in rows
        if row is not None
        and row.gpus
        and row.end_s > window.since_s
        and row.start_s < window.until_s
    ]


def gpus_of(body: Object) -> int:
    """GPUs of a pod, of what its containers are limited to."""
    quantities = (c["resources"].get("limits", {}).get(GPU, 0) for c in body["containers"])
    return sum(int(float(quantity)) for quantity in quantities)


def _attempts(objects: Sequence[Object]) -> Iterator[tuple[Object | None, list[Object]]]:
    """Pods that ran at one time, with the Job only where they are the last of it."""
    made = defaultdict(list)
    for pod in (o for o in objects if o["kind"] == "Pod"):
        owners = [o for o in pod["metadata"].get("ownerReferences", ()) if o["controller"]]
        if not owners:
            yield None, [pod]
        elif owners[0]["kind"] == "Job":
            made[owners[0]["uid"]].append(pod)
    for job in (o for o in objects if o["kind"] == "Job"):
        tries = _tries(made[job["metadata"]["uid"]])
        for earlier in tries[:-1]:
            yield None, earlier
        yield job, tries[-1] if tries else []


def _tries(pods: list[Object]) -> list[list[Object]]:
    """The first pod of every index, the second of every index, and so on."""
    by_index = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: pod["status"].get("startTime", "9")):
        by_index[pod["metadata"]["annotations"][INDEX]].append(pod)
    count = max(map(len, by_index.values()), default=0)
    return [[found[i] for found in by_index.values() if i < len(found)] for i in range(count)]


def _row(
    job: Object | None, pods: list[Object], types: dict[str, str], window: Window
) -> Row | None:
    began = [pod for pod in pods if "startTime" in pod["status"]]
    found = {types[pod["spec"]["nodeName"]] for pod in began}
    head = pods[0] if job is None else job
    status = head["status"]
    spans = [
        (_at(pod["status"]["startTime"]), _end(pod, window), gpus_of(pod["spec"])) for pod in began
    ]
    if job is not None and not pods and "startTime" in status:
        wanted = gpus_of(job["spec"]["template"]["spec"]) * job["spec"]["completions"]
        spans = [
            (_at(status["startTime"]), _at(status["conditions"][-1]["lastTransitionTime"]), wanted)
        ]
        selector = job["spec"]["template"]["spec"]["nodeSelector"]
        found = {TYPES[selector[f"{GPU}.product"]]}
    if not spans:
        return None
    start_s, end_s = min(s for s, _, _ in spans), max(e for _, e, _ in spans)
    gpus = sum(gpus for _, _, gpus in spans)
    outcome = "running" if end_s > window.until_s else _outcome(job, pods)
    return Row(
        name=head["metadata"]["name"],
        account=head["metadata"]["namespace"],
        user=head["metadata"]["namespace"],
        partition=head["metadata"].get("labels", {}).get(QUEUE, "unknown"),
        gpu_type=found.pop() if len(found) == 1 else "unknown",
        outcome=outcome,
        gpus=gpus,
        start_s=start_s,
        end_s=end_s,
        gpu_s=gpus * window.seconds(start_s, end_s),
        held_s=sum(gpus * window.seconds(start, end) for start, end, gpus in spans),
    )


def _end(pod: Object, window: Window) -> int:
    """When the last container finished; of a lost node when the pod was given up."""
    status = pod["status"]
    if status["phase"] == "Running":
        return window.until_s + 1
    states = [
        c["state"].get("terminated", {})
        for kind in ("initC", "c")
        for c in status.get(f"{kind}ontainerStatuses", ())
    ]
    finished = [_at(state["finishedAt"]) for state in states if state.get("finishedAt")]
    given_up = [
        _at(c["lastTransitionTime"])
        for c in status["conditions"]
        if c["type"] == "DisruptionTarget"
    ]
    return max((*finished, *given_up), default=_at(status["startTime"]))


def _outcome(job: Object | None, pods: list[Object]) -> str:
    told = {} if job is None else {c["type"]: c["reason"] for c in job["status"]["conditions"]}
    if "Complete" in told:
        return "completed"
    if told.get("Failed") == "DeadlineExceeded":
        return "timed_out"
    found = {_pod_outcome(pod) for pod in pods}
    return next(outcome for outcome in WORST if outcome in found)


def _pod_outcome(pod: Object) -> str:
    status = pod["status"]
    if status["phase"] == "Succeeded":
        return "completed"
    disrupted = {c["type"]: c.get("reason", "") for c in status["conditions"]}
    reasons = (status.get("reason", ""), disrupted.get("DisruptionTarget", ""))
    return next((OUTCOMES[reason] for reason in reasons if reason in OUTCOMES), "failed")


def _at(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp())
