"""Nodes, pods and Jobs of the live tests, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gfd_nodes import node
from kubernetes import client

from .control_plane import NAMESPACE, ControlPlane, wait_until

MIXED = {
    "model": "resnet50",
    "precision": "amp",
    "batch-size": "64",
    "epochs": "90",
    "dataset-size": "1281167",
}
FP32 = {
    "model": "resnet50",
    "precision": "fp32",
    "options": "tf32=off",
    "batch-size": "64",
    "epochs": "90",
    "dataset-size": "1281167",
}
BF16 = {"model": "bert-large", "precision": "bf16-mixed", "batch-size": "4", "steps": "1000"}


def p100(name: str) -> dict[str, Any]:
    return node(name, "Tesla-P100-PCIE-16GB", memory=16384, gpus=8, capability=(6, 0))


def ready(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that pods may run on: a kubelet would say so, and how many pods it takes."""
    for each in nodes:
        del each["metadata"]["uid"], each["metadata"]["managedFields"]
        offered = {**each["status"]["capacity"], "memory": "512Gi", "pods": "250"}
        each["status"] = {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    return nodes


def template(said: Mapping[str, str], gpus: int = 1) -> dict[str, Any]:
    asked = {"nvidia.com/gpu": str(gpus)}
    container = {
        "name": "train",
        "image": "example.invalid/train:1",
        "resources": {"limits": asked, "requests": asked},
    }
    annotations = {f"precision-time.io/{key}": value for key, value in said.items()}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def pods(prefix: str, count: int, said: Mapping[str, str]) -> list[dict[str, Any]]:
    made = [template(said) for _ in range(count)]
    for i, pod in enumerate(made):
        pod["metadata"]["name"] = f"{prefix}-{i}"
    return made


def job(name: str, said: Mapping[str, str], **spec: Any) -> Any:
    annotations = {f"precision-time.io/{key}": value for key, value in said.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": template(said), **spec},
    }


@dataclass(frozen=True)
class Created:
    """A Job as the API server would store it, and what kubectl prints."""

    object: dict[str, Any]
    said: str

    @property
    def deadline_s(self) -> int | None:
        found: int | None = self.object["spec"].get("activeDeadlineSeconds")
        return found

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.object["metadata"].get("annotations", {}))

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.object["metadata"].get("labels", {}))

    @property
    def inner(self) -> dict[str, str]:
        return dict(self.object["spec"]["template"]["metadata"].get("annotations", {}))


def created(cluster: ControlPlane, namespace: str, obj: dict[str, Any]) -> Created:
    """What a creation comes to; nothing is stored."""
    options = ("--dry-run=server", "--output=json", "--namespace", namespace)
    out, said = cluster.kubectl("create", "-f", "-", *options, given=[obj])
    found = json.loads(out)
    return Created(found["items"][0] if found["kind"] == "List" else found, said)


def namespace(cluster: ControlPlane, label: str) -> None:
    """A namespace of the name of its label's value."""
    labels = {"precision-time.io/deadline": label}
    metadata = {"name": label, "labels": labels}
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])


@contextmanager
def registered(cluster: ControlPlane, objects: list[dict[str, Any]]) -> Iterator[None]:
    """Objects of the whole cluster for the time of a test."""
    cluster.apply(objects)
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", given=objects)


def wait_known(cluster: ControlPlane, nodes: list[dict[str, Any]]) -> None:
    """Until the extender ranks each of the nodes."""
    trusted = [pair.certificate.read_text().split() for pair in (cluster.old, cluster.new)]
    wait_until(lambda: cluster.shown_certificate().split() in trusted)  # not a test's before
    cluster.add_nodes(ready(nodes))
    names = [each["metadata"]["name"] for each in nodes]
    asked = {"Pod": template(MIXED), "Nodes": None, "NodeNames": names}
    wait_until(lambda: all(each["Score"] for each in cluster.ask("prioritize", asked)))


def why_waiting(cluster: ControlPlane, name: str) -> str | None:
    """What the scheduler says of a pod that it cannot place."""
    pod = client.CoreV1Api(cluster.api).read_namespaced_pod(name, NAMESPACE)
    said = {c.type: c for c in pod.status.conditions or ()}.get("PodScheduled")
    return said.message if said is not None and said.reason == "Unschedulable" else None
