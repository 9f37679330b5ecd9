"""Soft placement: preferred node affinity by predicted speed, written once on a new pod.

A preferred term never blocks a pod, and never evicts another one. The scheduler divides the sum of
a node's weights by the largest, so only ratios count, and doubles it beside the other scores: a
type of half the weight loses 100 points, as much as a whole plugin can give it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config import PREFIX
from ..decide import Decider
from ..plain import JsonPath, items, text, texts
from ..records import PodJob
from ..selectors import candidates
from .patch import Patch
from .review import annotations_of, labels_of

PLACED = f"{PREFIX}placement"
BEST = 100
STEP = 0.5
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_TERMS: JsonPath = ("spec", "affinity", "nodeAffinity", PREFERRED)
POD_TERMS: JsonPath = ("spec", "affinity", "podAffinity", PREFERRED)
# What the pods of one job have in common, the outermost first.
GANGS = (
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/group-key",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "kueue.x-k8s.io/pod-group-name",
    "batch.kubernetes.io/controller-uid",
)
Weights = Mapping[tuple[str, str], int]


def weights(job: PodJob, pod: Mapping[str, Any], known: Decider) -> Weights:
    """The weight of each label and value that names a GPU type, the best first.

    Empty where there is nothing to choose, or where the user's own preference chooses: a pod that
    says nothing of its training, a single type, terms about the same label.
    """
    where = candidates(job, known.nodes(), known.config.hardware)
    if not where.certain or PLACED in annotations_of(pod):
        return {}
    steps = known.steps(job, where.types)
    found: dict[tuple[str, str], int] = {}
    for place, step in enumerate(steps):
        for kind in sorted(step, key=lambda kind: kind.product):
            weight = max(1, round(BEST * STEP**place))
            if kind.label:
                found.setdefault((kind.label, kind.product), weight)
    if len(set(found.values())) < 2 or {key for key, _ in found} & _users(pod):
        return {}
    if known.config.placement.single_term:
        return {label: weight for label, weight in found.items() if weight == BEST}
    return found


def place(patch: Patch, pod: Mapping[str, Any], job: PodJob, found: Weights) -> None:
    """Add the terms, and for the pods of one job to go where the first of them went."""
    terms = [_term(key, value, weight) for (key, value), weight in found.items()]
    best_label = next(key for key, _ in found)
    if patch.extend(NODE_TERMS, terms):
        said = ",".join(f"{value}={weight}" for (_, value), weight in found.items())
        patch.annotate(("metadata",), {PLACED: said})
        gang = {key: value for key, value in labels_of(pod).items() if key in GANGS}
        if job.pods > 1 and gang:
            name = next(key for key in GANGS if key in gang)
            patch.extend(POD_TERMS, [_beside({name: gang[name]}, best_label)])


def _term(key: str, value: str, weight: int) -> dict[str, Any]:
    wanted = {"key": key, "operator": "In", "values": [value]}
    return {"weight": weight, "preference": {"matchExpressions": [wanted]}}


def _beside(labels: Mapping[str, str], topology: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology}
    return {"weight": BEST, "podAffinityTerm": term}


def _users(pod: Mapping[str, Any]) -> set[str]:
    """Labels that the user's own preferred terms are about."""
    return {
        text(wanted, "key")
        for term in items(pod, *NODE_TERMS)
        for wanted in items(term, "preference", "matchExpressions")
    } | set(texts(pod, "spec", "nodeSelector"))
