"""A day of a site: Jobs and pods of many shapes that ended, run or wait."""

from __future__ import annotations

from object_sums import QUEUE, SINCE_H, UNTIL_H

from . import kubelet
from .kubelet import DEADLINE, ERROR, EVICTED, NODE_GONE, OUT_OF_MEMORY, SENT_AWAY
from .site import A100, HOUR_S, LAB, T4, V100, Site, container, spec

H = HOUR_S
ACCOUNTS = ("vision", "nlp", "nan", "null")
SAID = {
    "precision-time.io/model": "resnet50",
    "precision-time.io/precision": "amp",
    "precision-time.io/batch-size": "256",
}
HOSTILE = {
    "precision-time.io/model": "<script>alert(1)</script>",
    "note": "=cmd|'/C calc'!A0\n\x07\u202e",
    "precision-time.io/deadline": "forever'; DROP TABLE runs; --",
}


def live_through(site: Site) -> None:
    """All of it, in an order in which the scheduler finds room."""
    site.namespace(*ACCOUNTS)
    site.priorities({"urgent": 1000, "spare": -10})
    for part in (_ended_well, _ended_badly, _sent_away, _odd_pods, _hostile, _at_edges, _now):
        part(site)


def _ended_well(site: Site) -> None:
    job = site.job("vision", "resnet", spec(8, A100), 7 * H, activeDeadlineSeconds=8 * H)
    _one_pod(site, job, 7 * H + 41, 10 * H + 2527)
    gang = site.job("nlp", "bert", spec(8, A100), 17 * H, pods=2, labels={QUEUE: "large"})
    for i, pod in enumerate(site.pods_of(gang, 17 * H + 1)):
        site.ran(pod, 17 * H + 90 + 3 * i, 21 * H + 1013 - 5 * i)
    site.ended_job(gang, 17 * H + 2, 21 * H + 1015)
    again = site.job("vision", "retried", spec(4, A100), 9 * H, activeDeadlineSeconds=6 * H)
    (first,) = site.pods_of(again, 9 * H + 1)
    site.ran(first, 9 * H + 5, 9 * H + 2418, OUT_OF_MEMORY)
    (second,) = site.pods_of(again, 9 * H + 2430, again=1)
    site.ran(second, 9 * H + 2433, 11 * H + 7)
    site.ended_job(again, 9 * H + 1, 11 * H + 9, failed=1)
    generated = {"generateName": "sweep-"}
    sweep = site.job("nlp", "", spec(1, V100), 20 * H, metadata=generated)
    _one_pod(site, sweep, 20 * H + 3, 20 * H + 64)


def _ended_badly(site: Site) -> None:
    bad = site.job("nlp", "gives-up", spec(2, V100), 10 * H, backoffLimit=0)
    (pod,) = site.pods_of(bad, 10 * H)
    site.ran(pod, 10 * H + 9, 10 * H + 1810, ERROR)
    site.ended_job(bad, 10 * H + 1, 10 * H + 1812, failed=1, reason="BackoffLimitExceeded")
    # At a deadline the controller deletes the pods that run.
    late = site.job("null", "late", spec(4, A100), 11 * H, activeDeadlineSeconds=5400)
    site.ended_job(late, 11 * H + 2, 11 * H + 5402, failed=1, reason="DeadlineExceeded")
    alone = site.pod("vision", "too-long", spec(1, V100, activeDeadlineSeconds=3600), 12 * H)
    site.ran(alone, 12 * H + 4, 13 * H + 4, DEADLINE)


def _sent_away(site: Site) -> None:
    """What makes room for others, and what a node takes with it."""
    low = site.job("vision", "low", spec(4, LAB, priorityClassName="spare"), 13 * H)
    (victim,) = site.pods_of(low, 13 * H)
    site.runs([victim], 13 * H + 6)
    urgent = site.pod("nlp", "urgent", spec(4, LAB, priorityClassName="urgent"), 14 * H)
    site.sent_away(victim)
    site.ran(victim, 13 * H + 6, 14 * H + 31, SENT_AWAY)
    site.ran(urgent, 14 * H + 33, 15 * H + 2)
    (second,) = site.pods_of(low, 14 * H + 32, again=1)
    site.ran(second, 15 * H + 4, 16 * H + 4)
    site.ended_job(low, 13 * H + 1, 16 * H + 6, failed=1)
    drained = site.pod("nan", "drained", spec(3, V100), 14 * H)
    site.runs([drained], 14 * H + 2)
    site.evict(drained)
    site.ran(drained, 14 * H + 2, 15 * H + 17, SENT_AWAY)
    full = site.pod("nan", "disk-full", spec(2, V100), 16 * H)
    site.ran(full, 16 * H + 2, 17 * H + 555, EVICTED)
    lost = site.pod("nan", "node-gone", spec(1, T4), 16 * H)
    site.ran(lost, 16 * H + 3, 18 * H + 21, NODE_GONE)


def _odd_pods(site: Site) -> None:
    """GPUs in several containers, or held by none that trains."""
    two = spec(0, V100)
    two["containers"] = [container(1), container(2, "score")]
    site.ran(site.pod("nan", "two-containers", two, 17 * H), 17 * H + 700, 18 * H + 711)
    fetch = spec(2, V100, initContainers=[container(0, "fetch")])
    pod = site.pod("null", "cannot-fetch", fetch, 19 * H)
    times = site.began_s + 19 * H + 3, site.began_s + 19 * H + 1503
    site.write(pod, kubelet.failed_to_prepare(site.bound(pod), *times, ERROR))
    pod = site.pod("null", "refused", spec(1, V100), 19 * H)
    site.bound(pod)
    site.write(pod, kubelet.refused(site.began_s + 19 * H + 5))
    job = site.job("vision", "no-gpu", spec(0), 19 * H)
    _one_pod(site, job, 19 * H + 5, 19 * H + 100)
    web = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "web-1",
        "controller": True,
    }
    serving = site.pod("vision", "web-0", spec(1, LAB), 19 * H, ownerReferences=[web])
    site.runs([serving], 19 * H + 2)


def _hostile(site: Site) -> None:
    """Whatever the API server takes."""
    long = ".".join(("a" * 63, "0" * 63, "z-9" * 21, "b" * 61))
    body = spec("2e0", V100)
    body["containers"][0] |= {
        "command": ["sh", "-c", "python 't.py' \"$(\n`#<b>&"],
        "env": [
            {"name": "PRECISION_TIME", "value": "model=\udcff".encode("utf-8", "replace").decode()}
        ],
    }
    labels = {QUEUE: "A.b_C-9" * 9, "app": "-".join("x" * 9), "empty": ""}
    pod = site.pod("null", long, body, 21 * H, labels=labels, annotations=HOSTILE)
    site.ran(pod, 21 * H + 1, 22 * H + 2)


def _at_edges(site: Site) -> None:
    """Across an edge of the period, up to it, and over all of it."""
    since, until = SINCE_H * H, UNTIL_H * H
    for name, body, start, end in (
        ("over-begin", spec(3, T4), since - 1000, since + 1234),
        ("over-end", spec(1, T4), until - 777, until + 500),
        ("over-all", spec(1, T4), since - 100, until + 100),
        ("first-second", spec(3, LAB), since, since + 1),
        ("last-second", spec(3, LAB), until - 1, until),
        ("ended-before", spec(3, LAB), since - 9, since),
        ("starts-after", spec(3, LAB), until, until + 60),
    ):
        site.ran(site.pod("nlp", name, body, start - 5), start, end)


def _now(site: Site) -> None:
    """What runs and waits at the end of the day."""
    site.runs([site.pod("vision", "on-cordoned", spec(2, T4), 27 * H)], 27 * H + 8)
    site.cordon("t4-0")
    job = site.job("vision", "running", spec(8, A100), 25 * H, activeDeadlineSeconds=48 * H)
    site.runs(site.pods_of(job, 25 * H), 25 * H + 11)
    site.write_job(job, kubelet.running_job(site.began_s + 25 * H + 1, active=1, ready=1))
    half = site.job("nlp", "half", spec(8, A100), 26 * H, pods=2, activeDeadlineSeconds=72 * H)
    first, second = site.pods_of(half, 26 * H)
    site.runs([first], 26 * H + 13)
    site.write_job(half, kubelet.running_job(site.began_s + 26 * H + 1, active=2, ready=1))
    site.waits(second)
    site.waits(
        site.pod(
            "null", "waits", spec(4, A100, priorityClassName="spare"), 28 * H, annotations=SAID
        )
    )
    site.waits(site.pod("null", "waits-cordoned", spec(1, T4), 28 * H))
    for name, labels in (("parked", {}), ("queued", {QUEUE: "large"})):
        held = site.job("nlp", name, spec(8), 27 * H, suspend=True, labels=labels)
        site.write_job(held, kubelet.suspended_job(site.began_s + 27 * H))


def _one_pod(site: Site, job: dict[str, object], start: float, end: float) -> None:
    """A Job of one pod that ends well."""
    (pod,) = site.pods_of(job, start - 3)
    site.ran(pod, start, end)
    site.ended_job(job, start - 2, end + 2)
