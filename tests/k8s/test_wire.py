"""JSON of the scheduler: what is read, what is refused, and how answers look."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from k8s_server_process import captured

from k8s_extender.decide import FilterResult, HostScores
from k8s_extender.errors import WireError
from k8s_extender.server import verbs as wire

POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": []}}

names = st.lists(st.text(min_size=1, max_size=12), max_size=60, unique=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Pod",
                    "Nodes",
                    "NodeNames",
                    "metadata",
                    "name",
                    "items",
                    "spec",
                    "UID",
                    "NodeNameToVictims",
                    "NodeNameToMetaVictims",
                    "Pods",
                    "NumPDBViolations",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def body(**args: Any) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": None} | args).encode()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_captured_names_and_nodes_are_the_same_request(verb: str) -> None:
    by_name = captured(f"{verb}-nodeCacheCapable-true")["request_body"]
    by_node = captured(f"{verb}-nodeCacheCapable-false")["request_body"]
    named = wire.nodes_request(json.dumps(by_name).encode())
    whole = wire.nodes_request(json.dumps(by_node).encode())
    assert sorted(named.names) == sorted(whole.names)
    assert named.names == by_name["NodeNames"]
    assert named.nodes is None
    assert whole.nodes == by_node["Nodes"]["items"]
    assert named.pod["metadata"]["name"] == by_name["Pod"]["metadata"]["name"]


def test_captured_victims_are_read_from_uids_and_from_whole_pods() -> None:
    for which, key in (("true", "NodeNameToMetaVictims"), ("false", "NodeNameToVictims")):
        call = captured(f"preempt-nodeCacheCapable-{which}")
        request = wire.preempt_request(json.dumps(call["request_body"]).encode())
        assert set(request.victims) == set(call["request_body"][key])
        answer = json.loads(wire.preempt_answer(request, request.victims))
        assert answer == call["response_body"]


def test_only_nodes_that_may_be_used_keep_their_victims() -> None:
    call = captured("preempt-nodeCacheCapable-true")
    request = wire.preempt_request(json.dumps(call["request_body"]).encode())
    answer = json.loads(wire.preempt_answer(request, ["a100-0"]))
    assert answer == {
        "NodeNameToMetaVictims": {"a100-0": call["request_body"]["NodeNameToMetaVictims"]["a100-0"]}
    }
    assert json.loads(wire.preempt_answer(request, [])) == {"NodeNameToMetaVictims": {}}


def test_a_filter_answer_has_every_key_that_the_scheduler_looks_for() -> None:
    result = FilterResult(["a"], {"b": "late", "c": "small"})
    answer = json.loads(wire.filter_answer(wire.NodesRequest(POD, ["a", "b", "c"]), result))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"b": "late", "c": "small"},
        "Error": "",
    }


def test_where_no_node_passes_the_names_are_an_empty_list_and_not_null() -> None:
    result = FilterResult([], {"a": "small"})
    answer = json.loads(wire.filter_answer(wire.NodesRequest(POD, ["a"]), result))
    assert answer["NodeNames"] == []


def test_whole_nodes_come_back_unchanged_and_only_those_that_pass() -> None:
    call = captured("filter-nodeCacheCapable-false")["request_body"]
    request = wire.nodes_request(json.dumps(call).encode())
    passed = (request.names[0], request.names[2])
    answer = json.loads(wire.filter_answer(request, FilterResult(passed)))
    assert answer["NodeNames"] == list(passed)
    assert answer["Nodes"] == {"items": [call["Nodes"]["items"][0], call["Nodes"]["items"][2]]}


def test_where_whole_nodes_are_sent_their_names_count() -> None:
    nodes = {"items": [{"metadata": {"name": "a"}}]}
    request = wire.nodes_request(body(Nodes=nodes, NodeNames=["b"]))
    assert list(request.names) == ["a"]
    with pytest.raises(WireError, match="name"):
        wire.nodes_request(body(Nodes={"items": [{"metadata": {"name": []}}]}, NodeNames=["b"]))


@given(names, st.data())
def test_every_score_is_an_integer_literal(hosts: list[str], data: Any) -> None:
    by_code = data.draw(st.lists(st.integers(0, 100), min_size=1))
    codes = {host: data.draw(st.integers(0, len(by_code) - 1)) for host in hosts[::2]}
    texts = HostScores(codes, by_code)
    for _ in range(2):
        answer = json.loads(
            f"[{','.join(map(texts.__getitem__, hosts))}]",
            parse_float=lambda text: pytest.fail(f"{text} is no int"),
        )
        assert answer == [{"Host": host, "Score": texts.score(host)} for host in hosts]
    assert set(texts) == set(hosts[::2])


@given(names)
def test_names_survive_as_they_are(given_names: list[str]) -> None:
    request = wire.nodes_request(body(NodeNames=given_names))
    assert list(request.names) == given_names
    result = FilterResult(request.names)
    assert json.loads(wire.filter_answer(request, result))["NodeNames"] == given_names


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"Pod": None}, "Pod=null"),
        ({"Pod": 3}, "Pod=3"),
        ({"Pod": {"metadata": []}}, "Pod.metadata=list"),
        ({"Pod": {"spec": "x"}}, "Pod.spec='x'"),
        ({"NodeNames": "a"}, "NodeNames='a'"),
        ({"NodeNames": ["a", 1]}, r"NodeNames\[1\]=1"),
        ({"NodeNames": {"a": 1}}, "NodeNames=dict"),
        ({"Nodes": []}, "Nodes=list"),
        ({"Nodes": {"items": [None]}}, r"Nodes.items\[0\]=null"),
        ({"Nodes": {"items": [{}]}}, r"Nodes.items\[0\].metadata=null; expected an object"),
        ({"Nodes": {"items": [{"metadata": {"name": 5}}]}}, "metadata.name=5"),
        ({}, "NodeNames and Nodes are both null"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(args: dict[str, Any], key: str) -> None:
    with pytest.raises(WireError, match=key):
        wire.nodes_request(body(**args))


@pytest.mark.parametrize(
    ("victims", "key"),
    [
        ({"n": 1}, "NodeNameToMetaVictims.n=1; expected an object"),
        ({"n": {"Pods": {}}}, "NodeNameToMetaVictims.n.Pods=dict"),
        ({"n": {"Pods": [{"UID": 1}]}}, r"n.Pods\[0\].UID=1"),
        ({"n": {"Pods": [{}]}}, r"n.Pods\[0\].UID=null; expected a text"),
        ({"n": {"Pods": [], "NumPDBViolations": 1.5}}, "NumPDBViolations=1.5"),
        ({"n": {"Pods": [], "NumPDBViolations": 10**30}}, "NumPDBViolations=1e"),
        ([1], "NodeNameToMetaVictims=list"),
    ],
)
def test_wrong_victims_are_refused_by_the_name_of_their_key(victims: Any, key: str) -> None:
    with pytest.raises(WireError, match=key):
        wire.preempt_request(body(NodeNameToMetaVictims=victims))


def test_null_stands_for_nothing_wherever_go_sends_it() -> None:
    assert wire.nodes_request(body(Nodes={"items": None})).names == []
    victims = {"n": None, "m": {"Pods": None, "NumPDBViolations": 0}}
    request = wire.preempt_request(body(NodeNameToVictims=victims))
    assert [v["Pods"] for v in request.victims.values()] == [[], []]
    assert wire.preempt_request(body()).victims == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"Pod": NaN}',
        b'{"Pod": Infinity}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\x00" * 1000,
    ],
)
def test_what_is_no_call_is_refused(text: bytes) -> None:
    for read in (wire.nodes_request, wire.preempt_request):
        with pytest.raises(WireError):
            read(text)


def test_a_node_too_deep_to_be_sent_back_is_refused() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    request = wire.nodes_request(body(Nodes={"items": [{"metadata": {"name": "n"}, "x": deep}]}))
    with pytest.raises(WireError, match="Nodes"):
        wire.filter_answer(request, FilterResult(["n"]))


def test_a_body_of_millions_of_tiny_values_is_refused_before_it_is_read() -> None:
    for tiny in (b"[]", b"{}", b"1", b'""'):
        text = b'{"Pod":{"a":[' + b",".join([tiny] * 500_000) + b"]}}"
        with pytest.raises(WireError, match="too many"):
            wire.nodes_request(text)


def test_ten_thousand_names_and_two_megabytes_of_nodes_are_read() -> None:
    many = [f"n{i}" for i in range(10_000)]
    assert list(wire.nodes_request(body(NodeNames=many)).names) == many
    items = captured("filter-nodeCacheCapable-false")["request_body"]["Nodes"]["items"]
    copies = [
        {**item, "metadata": {**item["metadata"], "name": f"n{i}-{item['metadata']['name']}"}}
        for i in range(140)
        for item in items
    ]
    text = json.dumps({"Pod": POD, "Nodes": {"items": copies}, "NodeNames": None}).encode()
    assert len(text) > 2_000_000
    assert len(wire.nodes_request(text).names) == len(copies)


@given(values)
def test_any_json_is_read_or_refused_and_nothing_else(value: Any) -> None:
    text = json.dumps(value).encode()
    for read in (wire.nodes_request, wire.preempt_request):
        refused = ""
        try:
            assert isinstance(read(text).pod, dict)
        except WireError as error:
            refused = str(error)
        assert len(refused) < 500


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_and_nothing_else(text: bytes) -> None:
    for read in (wire.nodes_request, wire.preempt_request):
        with pytest.raises(WireError):
            read(text)
