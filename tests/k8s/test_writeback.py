"""Predictions and refusals are told on the pods, and nothing waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from api_server_stand_in import StandIn, eventually, served
from gfd_nodes import a100, node
from k8s_configs import config_of, pod_job

from k8s_extender.decide import Decider, FilterResult
from k8s_extender.nodes import gpu_node
from k8s_extender.plain import PodName, pod_name, seconds_of
from k8s_extender.rank import PRECISION
from k8s_extender.workload import PodJob
from k8s_extender.writeback import (
    MAX_MESSAGE_BYTES,
    OBSERVED,
    REFUSED,
    UNCLEAR,
    ApiQueue,
    Recent,
    Writeback,
    body,
    refused,
)
from predictor.estimate.fitting import Fitted

BF16 = {"model": "bert-large", "precision": "bf16-mixed", "batch-size": "32", "steps": "7038"}
FP32 = {**BF16, "precision": "fp32"}
OURS = "precision-time.io/"


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with served() as stand_in:
        yield stand_in


@pytest.fixture
def write(cluster: StandIn) -> Iterator[Any]:
    made: list[Writeback] = []

    def writeback(**queue: Any) -> Writeback:
        queued = ApiQueue(**{"retry_s": 0.01, "max_retry_s": 0.1} | queue)
        made.append(Writeback(cluster.client(), queue=queued))
        return made[-1]

    yield writeback
    for each in made:
        each.queue.stop()


@pytest.fixture(scope="module")
def decider(fitted: Fitted) -> Any:
    def make(**config: Any) -> Decider:
        used = config_of(config)
        raw = [node("t1"), node("t2"), a100("a1"), {"metadata": {"name": "cpu1"}}]
        nodes = {n.name: n for n in (gpu_node(one, used.hardware) for one in raw)}
        return Decider(fitted.predictor, used, lambda: nodes, version="v7")

    return make


@dataclass(frozen=True)
class Pod:
    name: PodName
    job: PodJob


def pod(cluster: StandIn, stated: dict[str, str] = BF16, uid: str = "u1") -> Pod:
    raw = {
        "metadata": {
            "name": "train",
            "namespace": "ns",
            "uid": uid,
            "annotations": {f"{OURS}{key}": value for key, value in stated.items()},
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    cluster.pods["ns", "train"] = raw
    job = pod_job(raw, config_of({}))
    assert job is not None
    return Pod(pod_name(raw), job)


def annotations(cluster: StandIn) -> dict[str, str]:
    found: dict[str, str] = cluster.pods["ns", "train"]["metadata"]["annotations"]
    return found


def decide(brain: Decider, write: Writeback, pod: Pod) -> None:
    result = brain.filter(pod.job, ["t1", "t2", "a1", "cpu1"])
    write.filtered(brain, pod.name, pod.job, result)


def settled(write: Writeback, calls: int) -> bool:
    """So many calls came to an end."""
    counts = write.queue.counts
    return eventually(lambda: counts["done"] + counts["settled"] + counts["failed"] >= calls)


def messages(cluster: StandIn, reason: str = REFUSED) -> list[str]:
    return [e["message"] for e in cluster.events.values() if e["reason"] == reason]


def test_a_pod_is_told_its_time_on_the_gpus_it_may_land_on(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    brain, one = decider(), pod(cluster)
    decide(brain, write(), one)
    assert eventually(lambda: f"{OURS}predicted-duration" in annotations(cluster))
    told = annotations(cluster)
    (estimate,) = brain.estimates(one.job, [brain.nodes()["a1"].type])
    assert seconds_of(told[f"{OURS}predicted-duration"]) == round(estimate.total_s(0.5))
    assert seconds_of(told[f"{OURS}predicted-p95"]) == round(estimate.total_s(0.95))
    assert float(told[f"{OURS}predicted-step-seconds"]) == pytest.approx(estimate.step_s, rel=1e-5)
    assert "predictor=v7" in told[f"{OURS}predicted-basis"]
    assert f"{OURS}predicted-by-gpu" not in told
    assert told[f"{OURS}model"] == "bert-large"


def test_with_several_gpu_types_the_slowest_counts_and_all_are_listed(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    decide(decider(), write(), pod(cluster, FP32))
    assert eventually(lambda: f"{OURS}predicted-by-gpu" in annotations(cluster))
    told = annotations(cluster)
    parts = (part.split("=") for part in told[f"{OURS}predicted-by-gpu"].split(","))
    times = {product: seconds_of(text) or 0.0 for product, text in parts}
    assert set(times) == {"NVIDIA-A100-SXM4-80GB", "Tesla-T4"}
    assert max(times, key=times.__getitem__) == "Tesla-T4"
    assert seconds_of(told[f"{OURS}predicted-duration"]) == times["Tesla-T4"]


def test_an_event_says_why_nodes_were_refused_once_with_their_numbers(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    writeback, brain, one = write(), decider(), pod(cluster)
    for _ in range(20):
        decide(brain, writeback, one)
    assert settled(writeback, 2)
    assert messages(cluster) == [f"2 of 4 nodes refused: 2 x {PRECISION['bf16']}"]
    (event,) = cluster.events.values()
    assert (event["type"], event["involvedObject"]["uid"]) == ("Normal", "u1")


def test_a_pod_that_no_node_takes_is_warned(cluster: StandIn, write: Any, decider: Any) -> None:
    writeback, brain, one = write(), decider(), pod(cluster)
    writeback.filtered(brain, one.name, one.job, brain.filter(one.job, ["t1", "t2"]))
    assert settled(writeback, 1)
    assert next(iter(cluster.events.values()))["type"] == "Warning"


def test_observing_writes_one_event_of_what_would_be_and_nothing_else(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    brain, one, writing = decider(mode="observe"), pod(cluster), write()
    decide(brain, writing, one)
    assert settled(writing, 1)
    writing.queue.stop()
    assert messages(cluster, OBSERVED) == [
        f"2 of 4 nodes would be refused: 2 x {PRECISION['bf16']}"
    ]
    assert [request.method for request in cluster.requests] == ["POST"]
    assert annotations(cluster).keys() == {f"{OURS}{key}" for key in BF16}


def test_a_decision_made_again_writes_nothing_again(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    writeback, brain, one = write(), decider(), pod(cluster)
    for _ in range(50):
        decide(brain, writeback, one)
    assert settled(writeback, 2)
    writeback.queue.stop()
    assert len(cluster.requests) == 2


def test_two_replicas_of_the_extender_make_one_event(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    first, other, brain, one = write(), write(), decider(), pod(cluster)
    decide(brain, first, one)
    assert settled(first, 2)
    decide(brain, other, one)
    assert settled(other, 2)
    assert len(cluster.events) == 1
    assert other.queue.counts["settled"] == 1


def test_words_that_cannot_be_used_are_told(cluster: StandIn, write: Any, decider: Any) -> None:
    writeback = write()
    decide(decider(), writeback, pod(cluster, {"model": "resnet50", "precision": "fast"}))
    assert settled(writeback, 1)
    (message,) = messages(cluster, UNCLEAR)
    assert "batch-size is not stated" in message
    assert "fast" in message


def test_a_pod_that_says_nothing_is_left_alone(cluster: StandIn, write: Any, decider: Any) -> None:
    writeback = write()
    decide(decider(), writeback, pod(cluster, {}))
    writeback.queue.stop()
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("annotate", "patches", "events"),
    [({"pods": False}, 0, 1), ({"events": False}, 1, 0), ({"pods": False, "events": False}, 0, 0)],
)
def test_what_is_written_is_up_to_the_configuration(
    cluster: StandIn, write: Any, decider: Any, annotate: Any, patches: int, events: int
) -> None:
    writeback = write()
    decide(decider(annotate=annotate), writeback, pod(cluster))
    assert settled(writeback, patches + events)
    writeback.queue.stop()
    methods = [request.method for request in cluster.requests]
    assert (methods.count("PATCH"), methods.count("POST")) == (patches, events)


def test_a_pod_of_the_same_name_but_another_uid_is_not_written_on(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    writeback, old = write(), pod(cluster)
    pod(cluster, uid="u2")
    decide(decider(), writeback, old)
    assert settled(writeback, 2)
    assert f"{OURS}predicted-duration" not in annotations(cluster)
    assert writeback.queue.counts["settled"] == 1


def test_a_pod_that_is_gone_is_no_error(cluster: StandIn, write: Any, decider: Any) -> None:
    writeback, one = write(), pod(cluster)
    cluster.pods.clear()
    decide(decider(), writeback, one)
    assert settled(writeback, 2)
    assert (writeback.queue.counts["settled"], writeback.queue.counts["failed"]) == (1, 0)


@pytest.mark.parametrize("retry_after", [None, "0", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_an_api_server_that_is_busy_is_asked_again(
    cluster: StandIn, write: Any, decider: Any, retry_after: str | None
) -> None:
    cluster.faults.statuses.extend([429, 503, 500, 429])
    cluster.faults.retry_after = retry_after
    writeback = write()
    decide(decider(), writeback, pod(cluster))
    assert settled(writeback, 2)
    assert len(cluster.events) == 1
    assert f"{OURS}predicted-duration" in annotations(cluster)
    assert writeback.queue.counts["retried"] == 4


def test_what_is_forbidden_is_not_tried_again_but_said_with_the_next_decision(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    writeback, brain, one = write(), decider(), pod(cluster)
    cluster.faults.statuses.extend([403, 403])
    decide(brain, writeback, one)
    assert settled(writeback, 2)
    assert writeback.queue.counts["failed"] == 2
    assert len(cluster.requests) == 2
    decide(brain, writeback, one)
    assert settled(writeback, 4)
    assert len(cluster.events) == 1


def test_decisions_do_not_wait_for_an_api_server_that_hangs(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    cluster.faults.delay_s = 1.0
    writeback, brain = write(capacity=10), decider()
    one = pod(cluster)
    names = [replace(one.name, uid=f"u{i}") for i in range(100)]
    result = brain.filter(one.job, ["t1", "a1"])
    quiet = decider(annotate={"pods": False})
    began = time.monotonic()
    for name in names:
        writeback.filtered(quiet, name, one.job, result)
    assert time.monotonic() - began < 1.0 * len(names) / 2
    assert writeback.queue.counts["dropped"] >= 80


def test_what_was_dropped_is_said_with_the_next_decision(cluster: StandIn) -> None:
    lost: list[int] = []
    queue = ApiQueue(capacity=1)
    queue.stop()
    assert not queue.put(lambda: None, lambda: lost.append(1))
    assert lost == [1]
    assert queue.counts["dropped"] == 1


def test_an_api_server_that_comes_back_hears_what_waited(
    cluster: StandIn, write: Any, decider: Any
) -> None:
    writeback, one = write(retry_s=0.3, max_retry_s=0.5), pod(cluster)
    cluster.stop()
    decide(decider(), writeback, one)
    assert eventually(lambda: writeback.queue.counts["retried"])
    cluster.start()
    assert settled(writeback, 2)
    assert writeback.queue.counts["done"] == 2


def test_an_error_of_ours_does_not_end_the_thread(cluster: StandIn) -> None:
    def broken() -> Any:
        raise KeyError("x")

    queue = ApiQueue()
    queue.put(broken)
    queue.put(broken)
    assert eventually(lambda: queue.counts["failed"] == 2)
    queue.stop()


def test_messages_stay_within_what_the_api_server_takes() -> None:
    counts = {f"reason {i} " + "ü" * 50: i for i in range(1, 40)}
    event = refused(counts, FilterResult([]), observed=False)
    message = body(event, PodName("u1", "ns", "train"))["message"]
    assert MAX_MESSAGE_BYTES - 4 <= len(message.encode()) <= MAX_MESSAGE_BYTES
    assert message.endswith("...")


@pytest.mark.parametrize("name", ["a", "x" * 253, "a." * 126 + "b", "a" * 199 + "-b"])
def test_event_names_are_names_for_pods_of_any_name(cluster: StandIn, name: str) -> None:
    from api_server_stand_in import NAME

    named = replace(pod(cluster).name, name=name)
    found = body(refused({"x": 1}, FilterResult([]), observed=False), named)["metadata"]["name"]
    assert NAME.fullmatch(found)
    assert len(found) <= 253


def test_the_same_words_wait_and_other_words_wait_less() -> None:
    recent = Recent(most=2)
    wait = {"least_s": 0.0, "repeat_s": 3600.0}
    assert recent.claim("pod", "a", **wait)
    assert not recent.claim("pod", "a", **wait)
    assert recent.claim("pod", "b", **wait)
    assert not recent.claim("pod", "c", least_s=3600.0, repeat_s=None)
    recent.forget("pod")
    assert recent.claim("pod", "b", **wait)
    for other in "xyz":
        assert recent.claim(other, "a", **wait)
    assert recent.claim("pod", "b", **wait)
