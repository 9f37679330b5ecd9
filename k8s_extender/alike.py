"""Pods that differ in nothing but who they are, as those of one Job do: read once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson

from predictor.identify.rules import Rules

from .config import Config
from .plain import items
from .records import PodJob
from .workload import pod_job

MAX_KINDS = 256
MAX_BYTES = 2**14
# Labels and annotations that are another's for each Job or each pod; names in them are for rules.
OF_ONE = frozenset(
    (
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
        "batch.kubernetes.io/job-name",
        "job-name",
        "batch.kubernetes.io/job-completion-index",
    )
)
# The service account's volume has a name of its own in each pod. Containers are compared apart.
OF_SPEC = frozenset(("volumes", "hostname", "nodeName", "containers", "initContainers"))
OF_CONTAINER = frozenset(("volumeMounts",))


class JobReader:
    """Reads the jobs of pods, those that are alike once, and gives the same job for them.

    Where a site has rules, which may ask for names, every pod is read. Used by one thread.
    """

    def __init__(self) -> None:
        self._by: tuple[Config, Rules] | None = None
        self._jobs: OrderedDict[bytes, PodJob | None] = OrderedDict()

    def __call__(self, pod: Mapping[str, Any], config: Config, rules: Rules) -> PodJob | None:
        """The job of a pod."""
        if self._by is None or self._by[0] is not config or self._by[1] is not rules:
            self._by = (config, rules)
            self._jobs.clear()
        key = None if rules.rules else _key(pod)
        if key is None:
            return pod_job(pod, config, rules)
        if key in self._jobs:
            self._jobs.move_to_end(key)
            return self._jobs[key]
        job = self._jobs[key] = pod_job(pod, config, rules)
        if len(self._jobs) > MAX_KINDS:
            self._jobs.popitem(last=False)
        return job


def _key(pod: Mapping[str, Any]) -> bytes | None:
    """What may tell a pod's job, as bytes; None for a pod too large or odd to be worth it."""
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    told = (
        _without(metadata.get("labels"), OF_ONE),
        _without(metadata.get("annotations"), OF_ONE),
        _without(spec, OF_SPEC),
        [_without(each, OF_CONTAINER) for each in items(spec, "containers")],
        [_without(each, OF_CONTAINER) for each in items(spec, "initContainers")],
    )
    try:
        key = orjson.dumps(told)
    except (orjson.JSONEncodeError, RecursionError):
        return None
    return key if len(key) <= MAX_BYTES else None


def _without(value: Any, names: frozenset[str]) -> Any:
    if not isinstance(value, dict) or names.isdisjoint(value):
        return value
    return {key: part for key, part in value.items() if key not in names}
