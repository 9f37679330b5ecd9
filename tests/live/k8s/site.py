"""A small site on a real control plane: nodes, and Jobs and pods with the times they are given.

The API server creates, the scheduler binds and preempts. What ran is then written as a kubelet and
the Job controller would, and everything is dated back, so that a day of it fits into seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gfd_nodes import a100, node
from kubernetes import client
from object_sums import UNTIL_H

from . import kubelet
from .control_plane import ControlPlane, wait_until
from .kubelet import WELL, Ending
from .objects import ready
from .past import date_back

HOUR_S = 3600
AGE_H = UNTIL_H + 1  # so that the period is over, and what ends soon after it
A100, V100, T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-32GB", "Tesla-T4"
LAB = "NVIDIA-LAB-SAMPLE-900"  # of which nobody knows anything
GPU = "nvidia.com/gpu"

Object = dict[str, Any]


def nodes() -> list[Object]:
    v100 = node("v100-0", V100, memory=32768, gpus=4, capability=(7, 0))
    lab = node("lab-0", LAB, memory=65536, gpus=4, capability=(9, 9))
    return ready([a100("a100-0"), a100("a100-1"), v100, node("t4-0", T4), lab])


def container(gpus: int | str, name: str = "train", **more: Any) -> Object:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "image": "example.invalid/train:1", "resources": resources, **more}


def spec(gpus: int | str, product: str = "", **more: Any) -> Object:
    """A pod that asks for GPUs, of one type if it is named."""
    wanted = {"nodeSelector": {"nvidia.com/gpu.product": product}} if product else {}
    return {"containers": [container(gpus)], "restartPolicy": "Never", **wanted, **more}


class Site:
    """The nodes, and what is put on them; times are seconds after its beginning."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._core = client.CoreV1Api(cluster.api)
        self._batch = client.BatchV1Api(cluster.api)
        self.began_s = (int(time.time()) // HOUR_S - AGE_H) * HOUR_S
        for each in nodes():
            self._core.create_node({**each, "spec": {}})
            date_back(cluster, f"minions/{each['metadata']['name']}", created_s=self.began_s)

    def namespace(self, *names: str) -> None:
        """Where they are not there already: nobody here removes one."""
        kind = {"apiVersion": "v1", "kind": "Namespace"}
        self._cluster.apply([{**kind, "metadata": {"name": name}} for name in names])

    def priorities(self, values: Mapping[str, int]) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        self._cluster.apply(
            {**kind, "metadata": {"name": name}, "value": value} for name, value in values.items()
        )

    def pod(
        self, namespace: str, name: str, body: Object, created: float, **metadata: Any
    ) -> Object:
        """A pod that waits for the scheduler."""
        return self._created(
            namespace, {"metadata": {"name": name, **metadata}, "spec": body}, created
        )

    def job(
        self,
        namespace: str,
        name: str,
        body: Object,
        created: float,
        *,
        pods: int = 1,
        labels: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Object:
        """A Job without pods, which the controller would make."""
        metadata = more.pop("metadata", {"name": name}) | {"labels": dict(labels or {})}
        together = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
        made = self._batch.create_namespaced_job(
            namespace,
            {
                "metadata": metadata,
                "spec": {
                    **together,
                    **more,
                    "template": {"metadata": {"labels": {"app": "train"}}, "spec": body},
                },
            },
            field_validation="Strict",
        )
        place = f"jobs/{namespace}/{made.metadata.name}"
        date_back(self._cluster, place, created_s=self.began_s + created)
        return self._plain(self._batch.read_namespaced_job(made.metadata.name, namespace))

    def pods_of(self, job: Object, created: float, *, again: int = 0) -> list[Object]:
        """The pods of a Job, or those made ``again`` after others failed."""
        namespace, count = job["metadata"]["namespace"], job["spec"]["completions"]
        made = kubelet.job_pods(job, count, again)
        return [self._created(namespace, pod, created) for pod in made]

    def bound(self, pod: Object) -> Object:
        """The pod once it has a node."""
        wait_until(lambda: "nodeName" in self.now(pod)["spec"])
        return self.now(pod)

    def waits(self, pod: Object) -> None:
        """Returns once the scheduler says that it fits nowhere."""
        wait_until(
            lambda: any(
                c.get("reason") == "Unschedulable"
                for c in self.now(pod)["status"].get("conditions", ())
            )
        )

    def runs(self, pods: Sequence[Object], start: float) -> None:
        """They get a node and run."""
        for pod in pods:
            self.write(pod, kubelet.running_status(self.bound(pod), self.began_s + start))

    def ran(self, pod: Object, start: float, end: float, ending: Ending = WELL) -> None:
        """It gets a node, runs and ends."""
        times = self.began_s + start, self.began_s + end
        self.write(pod, kubelet.ended_status(self.bound(pod), *times, ending))
        if "deletionTimestamp" in self.now(pod)["metadata"]:
            name, namespace = _place(pod)
            date_back(self._cluster, f"pods/{namespace}/{name}", deleted_s=times[1])

    def write(self, pod: Object, status: Object) -> None:
        """What a kubelet says of a pod."""
        self._core.patch_namespaced_pod_status(*_place(pod), {"status": status})

    def write_job(self, job: Object, status: Object) -> None:
        """What the Job controller says of a Job."""
        self._batch.patch_namespaced_job_status(
            *_place(job), {"status": status}, field_validation="Strict"
        )

    def ended_job(
        self, job: Object, start: float, end: float, *, failed: int = 0, reason: str = ""
    ) -> None:
        """A Job that is complete, or failed for a reason."""
        pods = 0 if reason else job["spec"]["completions"]
        times = self.began_s + start, self.began_s + end
        status = kubelet.job_status(*times, succeeded=pods, failed=failed, reason=reason)
        if pods:
            status["completedIndexes"] = "0" if pods == 1 else f"0-{pods - 1}"
        self.write_job(job, status)

    def evict(self, pod: Object) -> None:
        """Through the API, as draining a node does."""
        name, namespace = _place(pod)
        self._core.create_namespaced_pod_eviction(name, namespace, {"metadata": {"name": name}})

    def sent_away(self, pod: Object) -> None:
        """Returns once somebody has the pod deleted; its finalizer keeps it."""
        wait_until(lambda: "deletionTimestamp" in self.now(pod)["metadata"])

    def cordon(self, name: str) -> None:
        self._cluster.kubectl("cordon", name)

    def now(self, pod: Object) -> Object:
        """A pod as it is."""
        return self._plain(self._core.read_namespaced_pod(*_place(pod)))

    def dump(self) -> Object:
        """All nodes, Jobs and pods."""
        told, _ = self._cluster.kubectl("get", "nodes,jobs,pods", "-A", "-o", "json")
        found: Object = json.loads(told)
        return found

    def clear(self) -> None:
        """Remove what was made; namespaces stay."""
        for pod in self._core.list_pod_for_all_namespaces().items:
            place = pod.metadata.name, pod.metadata.namespace
            if pod.metadata.finalizers:
                self._core.patch_namespaced_pod(*place, {"metadata": {"finalizers": None}})
            with suppress(client.ApiException):  # it went with its finalizer
                self._core.delete_namespaced_pod(*place, grace_period_seconds=0)
        for job in self._batch.list_job_for_all_namespaces().items:
            self._batch.delete_namespaced_job(
                job.metadata.name, job.metadata.namespace, propagation_policy="Background"
            )
        wait_until(lambda: not self._core.list_pod_for_all_namespaces().items)

    def _created(self, namespace: str, pod: Object, created: float) -> Object:
        made = self._core.create_namespaced_pod(namespace, pod, field_validation="Strict")
        name = made.metadata.name
        date_back(self._cluster, f"pods/{namespace}/{name}", created_s=self.began_s + created)
        return self._plain(made)

    def _plain(self, obj: Any) -> Object:
        found: Object = self._cluster.api.sanitize_for_serialization(obj)
        return found


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["name"], obj["metadata"]["namespace"]
