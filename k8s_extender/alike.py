"""Pods that differ in nothing but who they are, as those of one Job do: read once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from predictor.identify.rules import Rules

from .config import Config
from .plain import items, mapping, text
from .records import PodJob

MAX_KINDS = 256
MAX_BYTES = 2**16
# Left out where pods are compared: who a pod is, and what is looked at part by part.
IDENTITY = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "ownerReferences", "generateName", "managedFields", "labels", "annotations",
)  # fmt: skip
# Labels and annotations that are another's for each Job or each pod; names in them are for rules.
OF_ONE = (
    "batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name",
    "job-name", "batch.kubernetes.io/job-completion-index",
)  # fmt: skip
# The service account's volume has a name of its own in each pod.
OF_SPEC = ("volumes", "hostname", "nodeName", "containers", "initContainers")
OF_CONTAINER = ("volumeMounts",)

JobOf = Callable[[Mapping[str, Any], Config, Rules], PodJob | None]


class Alike:
    """Reads pods by ``job_of``, those that are alike once.

    Where a site has rules, which may ask for names, every pod is read. Used by one thread.
    """

    def __init__(self, job_of: JobOf) -> None:
        self._job_of = job_of
        self._by: tuple[Config, Rules] | None = None
        self._jobs: OrderedDict[bytes, PodJob | None] = OrderedDict()

    def __call__(self, pod: Mapping[str, Any], config: Config, rules: Rules) -> PodJob | None:
        """The job of a pod."""
        if self._by is None or self._by[0] is not config or self._by[1] is not rules:
            self._by = (config, rules)
            self._jobs.clear()
        key = None if rules.rules else _key(pod)
        if key is None:
            return self._job_of(pod, config, rules)
        if key not in self._jobs:
            self._jobs[key] = self._job_of(pod, config, rules)
            if len(self._jobs) > MAX_KINDS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(key)
        return _of_pod(self._jobs[key], pod)


def _of_pod(job: PodJob | None, pod: Mapping[str, Any]) -> PodJob | None:
    if job is None:
        return None
    return replace(
        job,
        uid=text(pod, "metadata", "uid"),
        namespace=text(pod, "metadata", "namespace"),
        name=text(pod, "metadata", "name") or text(pod, "metadata", "generateName"),
    )


def _key(pod: Mapping[str, Any]) -> bytes | None:
    """A digest of what may tell a pod's job; None for a pod too large to be worth it."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    told = (
        _without(metadata, IDENTITY),
        _without(mapping(metadata, "labels"), OF_ONE),
        _without(mapping(metadata, "annotations"), OF_ONE),
        _without(spec, OF_SPEC),
        [_without(c, OF_CONTAINER) for c in items(spec, "containers")],
        [_without(c, OF_CONTAINER) for c in items(spec, "initContainers")],
    )
    try:
        raw = orjson.dumps(told)
    except (orjson.JSONEncodeError, RecursionError):
        return None
    return hashlib.blake2b(raw, digest_size=32).digest() if len(raw) <= MAX_BYTES else None


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    rest = value.copy()
    for name in names:
        rest.pop(name, None)
    return rest
