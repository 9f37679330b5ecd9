"""Admission reviews as the API server sends them, and what its patches make of an object."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch
import yaml
from k8s_configs import config_of

from k8s_extender.admission import Admission
from k8s_extender.decide import Decider
from k8s_extender.nodes import GpuNode, GpuType
from k8s_extender.pods import VOLCANO
from predictor.estimate.fitting import Fitted
from predictor.identify.rules import Rules
from profiles.gpus import find_gpu

HERE = Path(__file__).parent
OURS = "precision-time.io/"
# A model that the sample of `fitted` holds, so that its prediction may carry a deadline.
STATED = {
    f"{OURS}model": "resnet50",
    f"{OURS}precision": "amp",
    f"{OURS}batch-size": "128",
    f"{OURS}epochs": "90",
    f"{OURS}dataset-size": "1281167",
}
ALWAYS: dict[str, Any] = {"deadline": {"mode": "always"}, "evidence": {"max_interval_ratio": 100}}
GROUPS = {
    "Pod": "",
    "Job": "batch",
    "PyTorchJob": "kubeflow.org",
    "TFJob": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
    "RayJob": "ray.io",
    "Workload": "kueue.x-k8s.io",
    "MPIJob": "kubeflow.org",
    "TrainJob": "trainer.kubeflow.org",
    VOLCANO: "batch.volcano.sh",
}


def gpus(name: str, **more: Any) -> GpuType:
    gpu = find_gpu(name)
    return GpuType(gpu.product, gpu, more.pop("count", 8), gpu.memory_bytes, **more)


A100, V100, P100 = gpus("a100"), gpus("v100"), gpus("p100")


def nodes(**types: GpuType | None) -> dict[str, GpuNode]:
    """Nodes by name, each labelled with its name as ``pool``."""
    return {name: GpuNode(name, kind, {"pool": name}) for name, kind in types.items()}


BOTH = nodes(fast=A100, slow=V100, cpu=None)


def manifest(name: str, **metadata: Any) -> dict[str, Any]:
    """A manifest that states no deadline, with more metadata."""
    text = (HERE / "manifests" / f"{name}.yaml").read_text()
    raw = json.loads(json.dumps(yaml.safe_load(text)))  # anchors of the file become copies
    without_deadlines(raw)
    raw["metadata"] |= metadata
    return dict(raw)


def without_deadlines(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("activeDeadlineSeconds", None)
        value.pop("maximumExecutionTimeSeconds", None)
        for inner in value.values():
            without_deadlines(inner)
    elif isinstance(value, list):
        for inner in value:
            without_deadlines(inner)


def captured(name: str) -> dict[str, Any]:
    """A review that a real API server sent."""
    path = HERE / "payloads" / f"admissionreview-{name}-request.json"
    return dict(json.loads(path.read_text()))


def review_of(obj: Mapping[str, Any], **request: Any) -> dict[str, Any]:
    """The review of an object that is created, as ``of_kind`` where it does not say itself."""
    kind = str(request.pop("of_kind", None) or obj["kind"])
    sent = "Job" if kind == VOLCANO else kind
    raw = captured("job")
    raw["request"] |= {
        "kind": {"group": GROUPS[kind], "version": "v1", "kind": sent},
        "namespace": "default",
        "object": obj,
    } | request
    return raw


def job(annotations: Mapping[str, str] = STATED, **more: Any) -> dict[str, Any]:
    """The captured Job with annotations; ``spec``, ``pod`` and ``labels`` add to its parts."""
    obj: dict[str, Any] = copy.deepcopy(captured("job")["request"]["object"])
    obj["metadata"]["annotations"] = dict(annotations)
    obj["metadata"]["labels"] |= more.get("labels", {})
    obj["spec"] |= more.get("spec", {})
    obj["spec"]["template"]["spec"] |= more.get("pod", {})
    return obj


def pod(annotations: Mapping[str, str] = STATED, **metadata: Any) -> dict[str, Any]:
    """The captured pod with annotations and more metadata."""
    obj: dict[str, Any] = copy.deepcopy(captured("pod")["request"]["object"])
    obj["metadata"] |= {"annotations": dict(annotations)} | metadata
    return obj


@dataclass(frozen=True)
class Admitted:
    """An answer: the object as it is stored, and what the user is told."""

    response: dict[str, Any]
    operations: list[dict[str, Any]]
    object: dict[str, Any]

    @property
    def said(self) -> str:
        return "\n".join(self.response.get("warnings", []))

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.object["metadata"].get("annotations") or {})


def knowledge(
    fitted: Fitted, table: Mapping[str, GpuNode] = BOTH, rules: Rules | None = None, **config: Any
) -> Decider:
    """What reviews rest on in a test; a configuration that always fills, where none is given."""
    settings = config_of(ALWAYS | config)
    return Decider(fitted.predictor, settings, lambda: table, rules=rules, version="20261201-1")


def admitted(
    known: Decider, obj: Mapping[str, Any], *, labelled: bool = False, **request: Any
) -> Admitted:
    """What becomes of an object; ``labelled`` where its namespace asks for deadlines."""
    return applied(Admission(lambda: known), review_of(obj, **request), labelled=labelled)


def applied(
    admission: Admission, raw: dict[str, Any], *, labelled: bool = False, verb: str = "review"
) -> Admitted:
    """The answer to a review, its patch applied."""
    options = {"by_namespace": True} if labelled else {}
    answer = json.loads(getattr(admission, verb)(json.dumps(raw).encode(), **options))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert response["uid"] == raw["request"]["uid"]
    assert response["allowed"] is True
    assert response.keys() <= {"uid", "allowed", "patch", "patchType", "warnings"}
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    operations = json.loads(base64.b64decode(response.get("patch", "W10=")))
    patched = jsonpatch.JsonPatch(operations).apply(raw["request"]["object"])
    return Admitted(response, operations, patched)
