"""From a pod, or the object that makes pods, to the training job they run."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import orjson

from predictor.identify.identify import identify
from predictor.identify.rules import RuleContext, Rules
from predictor.identify.stated import Problem, Stated

from .commands import (
    MAX_PODS,
    StartedCommand,
    pods_grouped,
    pods_launched,
    pods_stated,
    ran_by,
    scripted,
)
from .config import PREFIX, Config, Prioritize
from .plain import EXPECTED, MOST, at, count, items, mapping, seconds_of, text, texts
from .pod_gpus import PodGpus, asked_of, containers_with
from .pod_sets import PodSets, pod_sets
from .records import PodJob
from .selectors import selects

__all__ = ["JobReader", "pod_job", "selects", "template_job"]

DEADLINE = f"{PREFIX}deadline"
HARD = f"{PREFIX}deadline-hard"
GPU_MEMORY = f"{PREFIX}gpu-memory"
# Longer deadlines are slips: a deadline of ten years ends nothing.
LONGEST_S = 366 * 86_400.0
_BYTES = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s?(?:Gi|GiB|G|GB)", re.ASCII)
POLICY = f"{PREFIX}policy"
POLICIES: tuple[str, ...] = get_args(Prioritize.model_fields["policy"].annotation)
# Names of what made a pod, the outermost first: a rule about names means these.
OWNERS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
)
QUEUES = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "volcano.sh/queue-name")


@dataclass(frozen=True, slots=True)
class _Part:
    """One pod set with what of it is looked at."""

    template: Mapping[str, Any]
    count: int
    asked: PodGpus
    annotations: Mapping[str, str]

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.template, "spec")

    @property
    def labels(self) -> Mapping[str, str]:
        return texts(self.template, "metadata", "labels")

    @property
    def gpus(self) -> int:
        return self.asked.gpus * self.count


def pod_job(pod: Mapping[str, Any], config: Config, rules: Rules | None = None) -> PodJob | None:
    """The job that a pod is part of; None for a pod without GPUs, and for what is no pod."""
    return template_job("Pod", pod, config, rules)


def template_job(
    kind: str, obj: Mapping[str, Any], config: Config, rules: Rules | None = None
) -> PodJob | None:
    """The job of a Pod, or of what makes pods: the kinds of `pod_sets`.

    None for other kinds and where no pod asks for GPUs. Annotations of the object hold where those
    of its pods say nothing. What is of a wrong type counts as absent; nothing is raised.
    """
    found = pod_sets(kind, obj)
    parts = [] if found is None else _parts(obj, found, config)
    if found is None or not parts:
        return None
    main = max(parts, key=lambda part: part.gpus)
    ran = _ran(main, found)
    stated = _stated(obj, main, ran, rules)
    if found.settled:  # the object starts the processes
        stated = replace(stated, alone=False)
    wish_s, problems = _wish(main.annotations)
    policy, misnamed = _policy(main.annotations)
    memory, unread = _gpu_memory(main.annotations)
    return PodJob(
        stated=replace(stated, problems=(*stated.problems, *problems, *misnamed, *unread)),
        gpus_per_pod=main.asked.gpus,
        pods=_pods(parts, main, found, ran, stated),
        deadline_s=_deadline_s(main, found, wish_s),
        wish_s=wish_s,
        hard=main.annotations.get(HARD, "").lower() == "true",
        gpu_memory_bytes=memory,
        resource=main.asked.resource,
        node_selector=texts(main.spec, "nodeSelector"),
        node_affinity=_required(main.spec),
        tolerations=tuple(items(main.spec, "tolerations")),
        scheduling_policy=policy,
        gpu_fraction=main.asked.fraction,
        claimed=main.asked.claimed,
    )


def _parts(obj: Mapping[str, Any], found: PodSets, config: Config) -> list[_Part]:
    """The pod sets with GPUs."""
    outer = texts(obj, "metadata", "annotations")
    parts: list[_Part] = []
    for pods in found.sets:
        template = pods.of(obj)
        annotations = {**outer, **texts(template, "metadata", "annotations")}
        asked = asked_of(mapping(template, "spec"), annotations, config.hardware.resources)
        if asked is not None and 1 <= pods.count <= MAX_PODS:
            parts.append(_Part(template, pods.count, asked, annotations))
    return parts


def _ran(part: _Part, found: PodSets) -> StartedCommand:
    containers = containers_with(part.spec, part.asked.resource)
    if found.launcher is not None:
        containers = items(found.launcher, "spec", "containers")
    ran = ran_by(containers[0]) if containers else scripted("", {})
    return scripted(found.script, ran.environment) if found.script else ran


def _stated(
    obj: Mapping[str, Any], part: _Part, ran: StartedCommand, rules: Rules | None
) -> Stated:
    labels = {**texts(obj, "metadata", "labels"), **part.labels}
    context = RuleContext(
        name=_first(labels, OWNERS) or text(obj, "metadata", "name"),
        account=text(obj, "metadata", "namespace"),
        partition=_first(labels, QUEUES),
        command=" ".join(ran.words),
        script=ran.script,
    )
    found = identify(
        environment=ran.environment,
        annotations={k: v for k, v in part.annotations.items() if k.startswith(PREFIX)},
        script=ran.script,
        argv=() if ran.script else ran.words,
        rules=rules,
        context=context,
    )
    here = (replace(p, text=p.text.replace("--comment", "annotations")) for p in found.problems)
    return replace(found, problems=tuple(here))


def _pods(
    parts: list[_Part], main: _Part, found: PodSets, ran: StartedCommand, stated: Stated
) -> int:
    """Pods of the whole job, in pods as large as those of the main set."""
    each = main.asked.gpus
    if gpus := stated.values.get("gpus"):
        return max(1, -(-int(gpus) // each))
    if pods := pods_stated(main.annotations):
        return pods
    if not found.settled:
        launched = pods_launched(ran, main.labels, main.asked)
        if told := launched or pods_grouped(main.labels, main.annotations):
            return told
    return max(1, -(-sum(part.gpus for part in parts) // each))


def _deadline_s(part: _Part, found: PodSets, wish_s: float | None) -> float | None:
    """The shortest deadline that object, pod and annotation state, in seconds."""
    stated = (found.deadline_s, count(part.spec, "activeDeadlineSeconds"), wish_s)
    return min((float(s) for s in stated if s is not None and 0 < s <= MOST), default=None)


def _wish(annotations: Mapping[str, str]) -> tuple[float | None, tuple[Problem, ...]]:
    """The deadline that the user's annotation states, in seconds."""
    told = annotations.get(DEADLINE)
    asked = None if told is None else seconds_of(told)
    fits = asked is not None and 1 <= asked <= LONGEST_S
    problem = f"invalid deadline={told!r:.80}; expected {EXPECTED}, from 1s to 366d"
    return (asked if fits else None), _problems(told is not None and not fits, problem)


def _gpu_memory(annotations: Mapping[str, str]) -> tuple[int | None, tuple[Problem, ...]]:
    """The memory that the user says each GPU must have, in bytes."""
    told = annotations.get(GPU_MEMORY)
    match = None if told is None else _BYTES.fullmatch(told.strip())
    problem = f"invalid gpu-memory={told!r:.80}; expected GiB such as 60Gi"
    unread = _problems(told is not None and match is None, problem)
    return (None if match is None else round(float(match[1]) * 2**30)), unread


def _policy(annotations: Mapping[str, str]) -> tuple[str | None, tuple[Problem, ...]]:
    told = annotations.get(POLICY)
    problem = f"invalid policy={told!r:.80}; expected one of {', '.join(POLICIES)}"
    return (told if told in POLICIES else None), _problems(told not in (None, *POLICIES), problem)


def _problems(holds: bool, problem: str) -> tuple[Problem, ...]:
    return (Problem("annotation", problem),) if holds else ()


def _required(spec: Mapping[str, Any]) -> object:
    """The required terms of node affinity; None where there are none."""
    terms = "requiredDuringSchedulingIgnoredDuringExecution"
    required = at(spec, "affinity", "nodeAffinity", terms)
    return None if required is None else items(required, "nodeSelectorTerms")


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


MAX_KINDS = 256
MAX_BYTES = 2**14
# What is another's for each pod of a job, or each job of a kind: names in it are for rules.
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


class JobReader:
    """Reads the jobs of pods, those that differ in nothing but who they are once.

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
        key = _likeness(pod)
        if rules.rules or len(key) > MAX_BYTES:
            return pod_job(pod, config, rules)
        if key not in self._jobs:
            self._jobs[key] = pod_job(pod, config, rules)
            if len(self._jobs) > MAX_KINDS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(key)
        return self._jobs[key]


def _likeness(pod: Mapping[str, Any]) -> bytes:
    """All of a pod that may tell its job."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    parts = [_without(metadata.get(name), OF_ONE) for name in ("labels", "annotations")]
    containers = [*items(spec, "containers"), None, *items(spec, "initContainers")]
    parts += [_without(each, frozenset(("volumeMounts",))) for each in containers]
    return orjson.dumps((_without(spec, OF_SPEC), parts))


def _without(value: Any, names: frozenset[str]) -> Any:
    if not isinstance(value, dict) or names.isdisjoint(value):
        return value
    return {key: part for key, part in value.items() if key not in names}
