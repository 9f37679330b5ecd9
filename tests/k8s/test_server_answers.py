"""Calls over a real connection: the answers that kube-scheduler gets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from k8s_server_process import (
    BF16,
    CLUSTER,
    MIXED,
    PAYLOADS,
    ServerProcess,
    call,
    captured,
    names_body,
    pod,
    serving,
)

from k8s_extender.rank import PRECISION
from predictor.estimate.fitting import Fitted

CALLS = ("filter", "prioritize", "preempt")
NAMES = [each["metadata"]["name"] for each in CLUSTER]
FILTER_KEYS = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}


@pytest.fixture(scope="module")
def server(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "s") as running:
        yield running


def captured_body(call_: dict[str, Any]) -> bytes:
    return json.dumps(call_["request_body"]).encode()


def asked(body: dict[str, Any]) -> list[str]:
    """The names that a filter or prioritize call is about."""
    return body["NodeNames"] or [n["metadata"]["name"] for n in body["Nodes"]["items"]]


def kept_or_explained(answer: dict[str, Any]) -> list[str]:
    refused = [*answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
    return sorted([*answer["NodeNames"], *refused])


@pytest.mark.parametrize("prefix", ["/v1/", "/", "//"])
@pytest.mark.parametrize("capable", ["true", "false"])
def test_captured_calls_with_captured_headers_get_answers_that_the_scheduler_takes(
    server: ServerProcess, prefix: str, capable: str
) -> None:
    with contextlib.closing(server.connect()) as connection:
        for verb in CALLS:
            said = captured(f"{verb}-nodeCacheCapable-{capable}")
            body = captured_body(said)
            headers = dict(said["request_headers"]) | {"Content-Length": str(len(body))}
            status, answer = call(connection, prefix + verb, body, headers)
            assert status == 200
            if verb == "filter":
                assert set(answer) == FILTER_KEYS
                assert kept_or_explained(answer) == sorted(asked(said["request_body"]))
                assert answer["Error"] == ""
                assert (answer["Nodes"] is None) == (capable == "true")
            elif verb == "prioritize":
                assert [each["Host"] for each in answer] == asked(said["request_body"])
                assert all(type(each["Score"]) is int for each in answer)
            else:
                assert answer == said["response_body"]


def test_all_calls_of_a_scheduler_go_over_one_connection(server: ServerProcess) -> None:
    with contextlib.closing(server.connect()) as connection:
        connection.connect()
        first = connection.sock.getsockname()
        for i in range(60):
            body = names_body(pod(f"p{i % 3}", MIXED), NAMES)
            assert call(connection, "/v1/filter", body)[0] == 200
            assert call(connection, "/v1/prioritize", body)[0] == 200
        assert connection.sock.getsockname() == first


def test_hardware_that_cannot_run_the_precision_is_refused_for_good(server: ServerProcess) -> None:
    status, answer = server.post("/v1/filter", names_body(pod("bf16", BF16), NAMES))
    assert status == 200
    assert answer["NodeNames"] == ["a100-0", "a100-1", "cpu-0"]
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(
        ["v100-0", "v100-1", "p100-0", "t4-0"], PRECISION["bf16"]
    )


def test_the_fastest_gpus_get_the_highest_score(server: ServerProcess) -> None:
    answer = server.post("/v1/prioritize", names_body(pod("amp", MIXED), NAMES))[1]
    scores = {each["Host"]: each["Score"] for each in answer}
    assert scores["a100-0"] == scores["a100-1"] == 10
    assert scores["a100-0"] > scores["v100-0"] > scores["p100-0"] > 0
    assert scores["cpu-0"] == 0


def test_scores_after_a_filter_are_those_of_the_names_asked_about(server: ServerProcess) -> None:
    for turn, said in enumerate((MIXED, BF16)):
        one, other = pod(f"filtered-{turn}", said), pod(f"asked-at-once-{turn}", said)
        passed = server.post("/v1/filter", names_body(one, NAMES))[1]["NodeNames"]
        for names in (passed, passed, passed[1:], [*passed, "unheard-of"]):
            after = server.post("/v1/prioritize", names_body(one, names))[1]
            assert after == server.post("/v1/prioritize", names_body(other, names))[1]
            assert [each["Host"] for each in after] == names


def test_labels_in_the_request_go_before_the_table(server: ServerProcess) -> None:
    renamed = json.loads(json.dumps(CLUSTER))
    for each in renamed:
        each["metadata"]["name"] += "-unheard-of"
    body = {"Pod": pod("bf16-nodes", BF16), "Nodes": {"items": renamed}, "NodeNames": None}
    answer = server.post("/v1/filter", json.dumps(body).encode())[1]
    assert answer["NodeNames"] == [f"{n}-unheard-of" for n in ("a100-0", "a100-1", "cpu-0")]
    assert [n["metadata"]["name"] for n in answer["Nodes"]["items"]] == answer["NodeNames"]
    scores = server.post("/v1/prioritize", json.dumps(body).encode())[1]
    assert scores[0] == {"Host": "a100-0-unheard-of", "Score": 10}


def test_preemption_is_offered_only_on_nodes_that_pass(server: ServerProcess) -> None:
    victims = {n: {"Pods": [{"UID": f"u-{n}"}], "NumPDBViolations": 2} for n in NAMES}
    body = {"Pod": pod("bf16-p", BF16), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    answer = server.post("/v1/preempt", json.dumps(body).encode())[1]
    kept = {n: victims[n] for n in ("a100-0", "a100-1", "cpu-0")}
    assert answer == {"NodeNameToMetaVictims": kept}


def test_nodes_that_the_table_does_not_hold_pass(server: ServerProcess) -> None:
    answer = server.post("/filter", names_body(pod("new", BF16), ["born-just-now", "v100-0"]))[1]
    assert answer["NodeNames"] == ["born-just-now"]


def test_pods_without_gpus_pass_everywhere_without_a_score(server: ServerProcess) -> None:
    plain = pod("plain", BF16)
    plain["spec"]["containers"][0]["resources"] = {}
    assert server.post("/filter", names_body(plain, NAMES))[1]["NodeNames"] == NAMES
    scores = server.post("/prioritize", names_body(plain, NAMES))[1]
    assert {each["Score"] for each in scores} == {0}


def test_an_error_of_ours_loses_no_node_and_is_counted(server: ServerProcess) -> None:
    broken = pod("breaks-the-decision", {**BF16, "label": "read for the first time"})
    status, answer = server.post("/v1/filter", names_body(broken, NAMES))
    assert (status, answer["NodeNames"]) == (200, NAMES)
    scores = server.post("/v1/prioritize", names_body(broken, NAMES))[1]
    assert scores == [{"Host": name, "Score": 0} for name in NAMES]
    victims = {n: {"Pods": [{"UID": "u"}], "NumPDBViolations": 0} for n in NAMES}
    body = json.dumps({"Pod": broken, "NodeNameToMetaVictims": victims}).encode()
    assert server.post("/v1/preempt", body)[1] == {"NodeNameToMetaVictims": victims}
    page = server.get("/metrics", metrics=True)[1].decode()
    assert 'precision_time_k8s_requests_total{outcome="failed",verb="filter"} 1.0' in page
    logged = server.wait_for_event(lambda e: "exception" in e)
    assert "a bug of ours" in logged["exception"]


def test_a_changed_pod_is_read_anew(server: ServerProcess) -> None:
    changing = pod("changing", MIXED)
    assert server.post("/filter", names_body(changing, NAMES))[1]["NodeNames"] == NAMES
    changed = pod("changing", BF16)
    changed["metadata"]["resourceVersion"] = "2"
    assert server.post("/filter", names_body(changed, ["v100-0"]))[1]["NodeNames"] == []


@settings(max_examples=25)
@given(
    st.lists(
        st.sampled_from(NAMES) | st.from_regex(r"[a-z][a-z0-9.-]{0,30}", fullmatch=True),
        unique=True,
        max_size=200,
    ),
    st.integers(0, 5000),
    st.sampled_from([MIXED, BF16, {}, {"precision": "bf16-mixed"}, {"model": "?", "epochs": "-1"}]),
)
def test_no_node_is_ever_lost_without_a_reason(
    server: ServerProcess, names: list[str], more: int, said: dict[str, str]
) -> None:
    everyone = [*names, *(f"node-{i:05d}" for i in range(more) if i % 7 or i > 500)]
    everyone = list(dict.fromkeys(everyone))[:5000]
    body = names_body(pod("any", said), everyone)
    body = body.replace(b'"uid-any"', json.dumps(f"uid-{len(said)}-{sorted(said)}").encode())
    answer = server.post("/v1/filter", body, {"Accept-Encoding": "gzip"})[1]
    assert kept_or_explained(answer) == sorted(everyone)
    assert [n for n in everyone if n in set(answer["NodeNames"])] == answer["NodeNames"]
    scores = server.post("/v1/prioritize", body, {"Accept-Encoding": "gzip"})[1]
    assert [each["Host"] for each in scores] == everyone
    assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in scores)


def test_what_is_asked_wrongly_is_told_so(server: ServerProcess) -> None:
    for method, path, status in (
        ("GET", "/v1/filter", 405),
        ("POST", "/livez", 405),
        ("POST", "/v1/bind", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/filter", 405),
        ("GET", "/metrics", 404),
    ):
        with contextlib.closing(server.connect()) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            assert answer.status == status, (method, path)
            assert "error" in json.loads(answer.read())


def test_each_decision_is_one_line_of_the_log(server: ServerProcess) -> None:
    server.post("/v1/filter", names_body(pod("logged", BF16), NAMES))
    line = server.wait_for_event(lambda e: e.get("pod") == "logged")
    duration = line.pop("duration_us")
    assert 0 < duration < 10_000_000
    assert line.pop("time")
    assert line == {
        "level": "info",
        "event": "decision",
        "verb": "filter",
        "outcome": "decided",
        "namespace": "default",
        "pod": "logged",
        "uid": "uid-logged",
        "nodes": len(NAMES),
        "passed": 3,
        "reasons": {PRECISION["bf16"]: 4},
    }


def test_metrics_have_few_labels_and_base_units(server: ServerProcess) -> None:
    server.post("/v1/filter", names_body(pod("metered", BF16), NAMES))
    status, raw = server.get("/metrics", metrics=True)
    page = raw.decode()
    assert status == 200
    reason = PRECISION["bf16"]
    assert f'precision_time_k8s_nodes_refused_total{{reason="{reason}"}}' in page
    assert 'precision_time_k8s_request_duration_seconds_count{verb="filter"}' in page
    assert f"precision_time_k8s_nodes {float(len(CLUSTER))}" in page
    assert 'precision_time_k8s_predictions_total{gpu="' in page
    assert "metered" not in page


def test_probes_are_answered_on_the_port_of_the_metrics_too(server: ServerProcess) -> None:
    for path in ("/livez", "/readyz"):
        assert server.get(path, metrics=True)[0] == 200
        assert server.get(path)[0] == 200


@pytest.mark.parametrize("kind", ["pod", "job"])
@pytest.mark.parametrize("path", ["/v1/mutate", "/v1/mutate-filling"])
def test_captured_admission_reviews_are_allowed(
    server: ServerProcess, kind: str, path: str
) -> None:
    review = json.loads((PAYLOADS / f"admissionreview-{kind}-request.json").read_bytes())
    status, answer = server.post(path, json.dumps(review).encode())
    assert status == 200
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == review["request"]["uid"]
    assert answer["response"]["allowed"] is True
    logged = server.wait_for_event(lambda e: e.get("review") == review["request"]["uid"])
    assert logged["event"] == "review"


def test_what_is_no_review_is_told_so(server: ServerProcess) -> None:
    assert server.post("/v1/mutate", b"{}")[0] == 400
