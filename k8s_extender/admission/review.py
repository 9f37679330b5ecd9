"""AdmissionReview v1 of the API server: requests read with care, answers that always allow."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ..errors import WireError
from ..plain import mapping, text, texts
from ..pod_gpus import asked_of
from ..pod_sets import VOLCANO, WORKLOAD, PodSet, pod_sets
from ..records import PodName, owner_of

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
# The API server takes objects of at most 3 MiB.
MAX_BODY_BYTES = 4 * 2**20
# All of them together are at most 4096 bytes, of five lines of four bytes a character.
MAX_WARNING = 200


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One object on its way: ``object`` is plain JSON with the namespace of the request in it."""

    uid: str
    group: str
    kind: str
    operation: str
    object: Mapping[str, Any]
    sub_resource: str = ""
    dry_run: bool = False

    @property
    def name(self) -> str:
        """Namespace and name, for the log."""
        metadata = mapping(self.object, "metadata")
        name = text(metadata, "name") or text(metadata, "generateName")
        return f"{text(metadata, 'namespace')}/{name}"


def request_of(body: bytes) -> AdmissionRequest:
    """The request of a body; raises WireError where it is no AdmissionReview of version 1."""
    if len(body) > MAX_BODY_BYTES:
        raise WireError(f"invalid body of {len(body)} bytes; expected at most {MAX_BODY_BYTES}")
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError(f"body is not JSON: {error}") from None
    if (text(review, "apiVersion"), text(review, "kind")) != (API_VERSION, KIND):
        raise WireError(f"invalid apiVersion and kind; expected {API_VERSION} {KIND}")
    request = mapping(review, "request")
    uid = text(request, "uid")
    if not uid:
        raise WireError("invalid request.uid; expected a text")
    group, kind = text(request, "kind", "group"), text(request, "kind", "kind")
    return AdmissionRequest(
        uid=uid,
        group=group,
        kind=VOLCANO if group == GROUPS[VOLCANO] and kind == "Job" else kind,
        operation=text(request, "operation"),
        object=_placed(mapping(request, "object"), text(request, "namespace")),
        sub_resource=text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
    )


def subject_of(request: AdmissionRequest) -> PodName:
    """The controller of an object, which has a name and uid before its pods do, or the object."""
    owner = owner_of(request.object)
    if owner.kind:
        return owner
    metadata = mapping(request.object, "metadata")
    api_version = text(request.object, "apiVersion")
    return PodName(
        "", text(metadata, "namespace"), text(metadata, "name"), request.kind, api_version
    )


def answer(uid: str, patch: Sequence[Mapping[str, Any]] = (), said: Iterable[str] = ()) -> bytes:
    """An answer that allows the object, with a patch and lines for the user where there are any."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    if warnings := [_short(line) for line in said]:
        response["warnings"] = warnings
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _placed(obj: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """The object with its namespace, which controllers leave to the request."""
    metadata = obj.get("metadata")
    if not namespace or not isinstance(metadata, Mapping) or metadata.get("namespace"):
        return obj
    return {**obj, "metadata": {**metadata, "namespace": namespace}}


def _short(line: str) -> str:
    """What a header can hold of a line, and short enough for all lines together."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    return plain if len(plain) <= MAX_WARNING else plain[: MAX_WARNING - 3] + "..."


GROUPS = {
    "Pod": "",
    "Job": "batch",
    "PyTorchJob": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
    "RayJob": "ray.io",
    "MPIJob": "kubeflow.org",
    "TrainJob": "trainer.kubeflow.org",
    VOLCANO: "batch.volcano.sh",
    WORKLOAD: "kueue.x-k8s.io",
}
# Controllers whose templates hold all that we would say on what they make.
OWNERS = {(group, kind) for kind, group in GROUPS.items() if kind != "Pod"}
OWNERS |= {("ray.io", "RayCluster")}


def gpu_pod_sets(
    group: str, kind: str, obj: Mapping[str, Any], resources: tuple[str, ...]
) -> tuple[PodSet, ...]:
    """The pods of an object that ask for GPUs; none for a kind that is not known.

    Kueue's Workload has no deadline here: Kueue compares ``maximumExecutionTimeSeconds`` with the
    label of the job and makes a Workload that differs anew, so the job's label is filled instead.
    """
    found = pod_sets(kind, obj) if GROUPS.get(kind) == group else None
    if found is None:
        return ()
    counted = (replace(pods, gpus=_gpus(obj, pods, resources)) for pods in found.sets)
    asking = (pods for pods in counted if pods.gpus)
    return tuple(replace(pods, deadline=None) if kind == WORKLOAD else pods for pods in asking)


def annotations_of(obj: Any) -> dict[str, str]:
    """The annotations of an object or a pod template."""
    return texts(obj, "metadata", "annotations")


def labels_of(obj: Any) -> dict[str, str]:
    """The labels of an object or a pod template."""
    return texts(obj, "metadata", "labels")


def left_to_owner(kind: str, owner: PodName) -> bool:
    """Whether everything was said on the owner already, or is its own business."""
    group, slash, _ = owner.api_version.partition("/")
    ours = (group if slash else "", owner.kind) in OWNERS
    return ours or (kind == WORKLOAD and bool(owner.kind))


def _gpus(obj: Mapping[str, Any], pods: PodSet, resources: tuple[str, ...]) -> int:
    template = pods.of(obj)
    annotations = {**annotations_of(obj), **annotations_of(template)}
    asked = asked_of(mapping(template, "spec"), annotations, resources)
    return 0 if asked is None else asked.gpus
