"""AdmissionReview v1 of the API server: requests read with care, answers that always allow."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ..errors import WireError
from ..plain import JsonPath, PodName, at, mapping, owner_of, text, texts
from ..pods import GROUPS, VOLCANO, WORKLOAD, PodSet, asked_of, pod_sets

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
# The API server takes objects of at most 3 MiB.
MAX_BODY_BYTES = 4 * 2**20
# Of the second that the API server waits at least, kube-scheduler two.
BUDGET_S = 0.7
# The API server cuts a line at 256 characters, and takes 4096 bytes of five lines together.
MAX_WARNING, MAX_WARNING_BYTES = 250, 800


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
    obj, namespace = mapping(request, "object"), text(request, "namespace")
    metadata = obj.get("metadata")
    if namespace and isinstance(metadata, Mapping) and not metadata.get("namespace"):
        # Controllers leave the namespace to the request.
        obj = {**obj, "metadata": {**metadata, "namespace": namespace}}
    return AdmissionRequest(
        uid=uid,
        group=group,
        kind=VOLCANO if group == GROUPS[VOLCANO] and kind == "Job" else kind,
        operation=text(request, "operation"),
        object=obj,
        sub_resource=text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
    )


def subject_of(request: AdmissionRequest) -> PodName:
    """The controller of an object, which has a name and uid before its pods do, or the object."""
    owner = owner_of(request.object)
    if owner.kind:
        return owner
    metadata, version = mapping(request.object, "metadata"), text(request.object, "apiVersion")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    return PodName("", namespace, name, request.kind, version)


def answer(uid: str, patch: Sequence[Mapping[str, Any]] = (), said: Iterable[str] = ()) -> bytes:
    """An answer that allows the object, with a patch and lines for the user where there are any."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    if warnings := [_short(line) for line in said]:
        response["warnings"] = warnings
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _short(line: str) -> str:
    """What a header can hold of a line, and short enough for all lines together."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    short = plain.encode()[:MAX_WARNING_BYTES].decode(errors="ignore")[:MAX_WARNING]
    return plain if short == plain else short[:-3] + "..."


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
    parts = []
    for part in () if found is None else found.sets:
        template = part.of(obj)
        annotations = {**annotations_of(obj), **annotations_of(template)}
        asked = asked_of(mapping(template, "spec"), annotations, resources)
        if asked is not None:
            deadline = None if kind == WORKLOAD else part.deadline
            parts.append(replace(part, gpus=asked.gpus, deadline=deadline))
    return tuple(parts)


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


MAX_ANNOTATIONS_BYTES = 256 * 1024


class Patch:
    """A JSON patch (RFC 6902) that only adds: what is there already stays as it is.

    A patch that does not apply makes the API server refuse the object, so where a parent is of
    another type than expected nothing is added.
    """

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.operations: list[dict[str, Any]] = []
        self._patched: Any = copy(obj)  # what is changed in it is copied first

    def put(self, path: JsonPath, value: object) -> bool:
        """Add a value with the objects it lies in; False where it is there or cannot lie there."""
        place, depth = self._patched, 0
        while depth < len(path) and (found := at(place, path[depth])) is not None:
            place[path[depth]] = copy(found)
            place, depth = place[path[depth]], depth + 1
        missing = path[depth:]
        if not missing or not isinstance(place, dict) or any(isinstance(s, int) for s in missing):
            return False
        for step in reversed(missing[1:]):
            value = {step: value}
        self._operation(path[: depth + 1], value)  # one: the API server applies each by itself
        place[missing[0]] = value
        return True

    def extend(self, path: JsonPath, values: Sequence[object]) -> bool:
        """Add values at the end of a list, made where it is absent; False where there is none."""
        there = at(self._patched, *path)
        if there is None:
            return self.put(path, list(values))
        if not isinstance(there, list):
            return False
        for value in values:
            self._operation((*path, "-"), value)
        return True

    def annotate(self, metadata: JsonPath, annotations: Mapping[str, str]) -> None:
        """Add annotations, none of them where all together would be more than is allowed."""
        place: JsonPath = (*metadata, "annotations")
        there = mapping(self._patched, *place)
        pairs = {k: v for k, v in annotations.items() if there.get(k) is None}
        held = "".join(str(text) for pair in {**there, **pairs}.items() for text in pair)
        if len(held.encode(errors="replace")) <= MAX_ANNOTATIONS_BYTES:
            for key, value in pairs.items():
                self.put((*place, key), value)

    def _operation(self, path: JsonPath, value: object) -> None:
        steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
        self.operations.append({"op": "add", "path": f"/{'/'.join(steps)}", "value": value})
