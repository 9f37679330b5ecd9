"""Bodies and connections of those who mean harm: refused, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator

import pytest
from k8s_server_process import CLUSTER, MIXED, ServerProcess, names_body, pod, serving

from predictor.estimate.fitting import Fitted

NAMES = [each["metadata"]["name"] for each in CLUSTER]
MIB = 2**20
PATIENCE_S = 45.0


@pytest.fixture(scope="module")
def server(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("hostile") / "s") as running:
        yield running


@pytest.fixture(autouse=True)
def still_served(server: ServerProcess) -> Iterator[None]:
    """After every attack the next scheduler gets its answer."""
    yield
    status, answer = server.post("/v1/filter", names_body(pod("after", MIXED), NAMES))
    assert (status, answer["NodeNames"]) == (200, NAMES)


DEEP = b"[" * 100_000
BODIES = {
    "nothing": b"",
    "no JSON": b"{'Pod': 1}",
    "binary": bytes(range(256)) * 100,
    "a list": b"[]",
    "null": b"null",
    "NaN": b'{"Pod": {}, "NodeNames": [NaN]}',
    "deep lists": DEEP,
    "deep objects": b'{"Pod":' * 50_000,
    "names of numbers": names_body(pod(), [1, 2]),  # type: ignore[list-item]
    "a pod that is a text": json.dumps({"Pod": "x", "NodeNames": ["a"]}).encode(),
    "no pod": json.dumps({"NodeNames": ["a"]}).encode(),
    "lone surrogate": b'{"Pod": {}, "NodeNames": ["\\ud800"]}',
    "a list for a name": b'{"Pod":{},"NodeNames":[],"Nodes":{"items":[{"metadata":{"name":[]}}]}}',
    "truncated": names_body(pod(), NAMES)[:-20],
    "a million empty lists": b'{"Pod":{},"NodeNames":[' + b"[]," * 10**6 + b"[]]}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_a_body_that_is_no_call_is_answered_400_in_a_few_words(
    server: ServerProcess, verb: str, body: bytes
) -> None:
    status, answer = server.post(f"/v1/{verb}", body)
    if verb == "preempt" and status == 200:  # a pod without victims is a call
        assert answer == {"NodeNameToMetaVictims": {}}
        return
    assert status == 400
    assert set(answer) == {"error"}
    assert len(answer["error"]) < 500


ODD_PODS = {
    "nothing": {},
    "null parts": {"metadata": None, "spec": None, "status": None},
    "wrong types": {
        "metadata": {"name": 1, "uid": [], "annotations": "x", "labels": [1], "namespace": {}},
        "spec": {"containers": {"a": 1}, "nodeSelector": 4, "affinity": [None]},
    },
    "containers of nulls": {"spec": {"containers": [None, 1, "x", {"resources": 5}]}},
    "absurd GPUs": pod("absurd", MIXED, gpus=10**30),
    "negative GPUs": pod("negative", MIXED, gpus=-3),
    "a huge annotation": pod("huge", {**MIXED, "model": "m" * MIB}),
    "strange values": pod("strange", {"model": "\x00\u202e\ud7ff", "batch-size": "1e999"}),
}


@pytest.mark.parametrize("odd", ODD_PODS.values(), ids=ODD_PODS)
def test_a_pod_that_makes_no_sense_passes_everywhere(server: ServerProcess, odd: object) -> None:
    status, answer = server.post("/v1/filter", names_body(odd, NAMES))
    assert (status, answer["NodeNames"]) == (200, NAMES)
    status, scores = server.post("/v1/prioritize", names_body(odd, NAMES))
    assert status == 200
    assert [each["Host"] for each in scores] == NAMES


def test_names_too_long_for_a_pod_are_not_logged(server: ServerProcess) -> None:
    odd = pod("short", MIXED)
    odd["metadata"] |= {"name": "n" * MIB, "namespace": ["x"] * 1000, "uid": "too-long"}
    assert server.post("/v1/filter", names_body(odd, NAMES))[0] == 200
    line = server.wait_for_event(lambda e: e.get("uid") == "too-long")
    assert (line["pod"], line["namespace"]) == ("", "")


def test_of_duplicate_keys_one_holds(server: ServerProcess) -> None:
    body = b'{"Pod": 1, "Pod": {}, "NodeNames": null, "NodeNames": ["a"]}'
    assert server.post("/v1/filter", body)[1]["NodeNames"] == ["a"]


def test_a_hundred_megabytes_are_refused_without_being_kept(server: ServerProcess) -> None:
    before = server.rss_bytes()
    most = before
    for declared in (True, False):
        with contextlib.closing(server.raw()) as connection:
            length = b"Content-Length: 104857600" if declared else b"Transfer-Encoding: chunked"
            connection.sendall(b"POST /v1/filter HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
            chunk = b"a" * MIB
            framed = chunk if declared else b"%x\r\n%s\r\n" % (len(chunk), chunk)
            with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012
                for _ in range(100):
                    connection.sendall(framed)
                    most = max(most, server.rss_bytes())
    assert most - before < 32 * MIB


def test_the_refusal_of_a_large_body_says_what_is_accepted(server: ServerProcess) -> None:
    with contextlib.closing(server.raw()) as connection:
        connection.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"at most 16777216 bytes" in answer


def test_compressed_bodies_are_refused(server: ServerProcess) -> None:
    assert server.post("/v1/filter", b"\x1f\x8b", {"Content-Encoding": "gzip"})[0] == 415


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET\r\n\r\n",
        b"POST /v1/filter HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/filter HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/filter HTTP/1.1\r\nContent-Length: 9999999999999999999999\r\n\r\n",
        b"POST http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"GET /" + b"a" * 200_000,
    ],
    ids=[
        "TLS hello",
        "half a line",
        "negative length",
        "two lengths",
        "endless length",
        "broken URL",
        "path of bytes",
        "upgrade",
        "HTTP/2",
        "many headers",
        "long line",
    ],
)
def test_what_is_no_http_ends_the_connection_or_is_told_so(
    server: ServerProcess, sent: bytes
) -> None:
    with contextlib.closing(server.raw()) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))


def test_many_requests_at_once_on_one_connection_are_answered_in_order(
    server: ServerProcess,
) -> None:
    body = names_body(pod("pipelined", MIXED), ["a100-0"])
    one = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    last = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with contextlib.closing(server.raw()) as connection:
        connection.sendall(one * 50 + last)
        answer = received(connection)
    assert answer.count(b"HTTP/1.1 200 OK") == 51
    assert answer.endswith(b'{"alive":true}')


@pytest.mark.slow
def test_slow_clients_are_let_go_while_others_are_served(server: ServerProcess) -> None:
    head = b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n"
    whole = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    slow = {
        "says nothing": (b"", b"", b""),
        "slow head": (b"", head, b"X"),
        "slow body": (b"", head + b"\r\n{", b" "),
        "half a head after an answer": (whole, head, b""),
        "half a body after an answer": (whole, head + b"\r\n{", b""),
        "half a body behind a request": (b"", whole + head + b"\r\n{", b""),
    }
    with contextlib.ExitStack() as stack:
        open_ = {}
        for name, (answered, first, _) in slow.items():
            open_[name] = stack.enter_context(contextlib.closing(server.raw()))
            if answered:
                open_[name].sendall(answered)
                assert open_[name].recv(1000).startswith(b"HTTP/1.1 200")
            open_[name].sendall(first)
            open_[name].settimeout(0.01)
        until = time.monotonic() + PATIENCE_S
        while open_:
            assert time.monotonic() < until, f"{list(open_)} still open"
            status, _ = server.post("/v1/filter", names_body(pod("served", MIXED), NAMES))
            assert status == 200
            for name in list(open_):
                if gone(open_[name], slow[name][2]):
                    del open_[name]
            time.sleep(0.3)
    page = server.get("/metrics", metrics=True)[1].decode()
    assert 'precision_time_k8s_connections_closed_total{why="slow request"} 5.0' in page
    assert 'precision_time_k8s_connections_closed_total{why="nothing sent"} 1.0' in page


def test_more_idle_connections_than_there_is_room_for_keep_nobody_out(
    server: ServerProcess,
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(700):
            stack.enter_context(contextlib.closing(server.raw()))
        status, _ = server.post("/v1/filter", names_body(pod("let-in", MIXED), NAMES))
        assert status == 200


def test_a_client_that_leaves_before_its_answer_harms_nobody(server: ServerProcess) -> None:
    body = names_body(pod("left", MIXED), [f"n{i}" for i in range(5000)])
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for cut in (len(body) // 2, len(body)):
        connection = server.raw()
        connection.sendall(head + body[:cut])
        connection.close()


def test_memory_does_not_grow_with_pods(server: ServerProcess) -> None:
    for i in range(300):
        server.post("/filter", names_body(pod(f"warm-{i}", MIXED), NAMES))
    before = server.rss_bytes()
    for i in range(1500):
        server.post("/filter", names_body(pod(f"pod-{i}", MIXED), NAMES))
    assert server.rss_bytes() - before < 8 * MIB


def test_random_damage_to_a_call_never_stops_the_service(server: ServerProcess) -> None:
    whole, chance = names_body(pod("damaged", MIXED), NAMES), random.Random(7)
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        status, answer = server.post("/v1/filter", bytes(body))
        assert status in (200, 400)
        if status == 200:
            refused = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
            assert len(answer["NodeNames"]) + len(refused) == len(NAMES)


def received(connection: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def gone(connection: socket.socket, more: bytes) -> bool:
    """True where the server has ended the connection; else a little more is sent."""
    try:
        if connection.recv(1000) == b"":
            return True
        connection.sendall(more)
    except TimeoutError:
        with contextlib.suppress(ConnectionError):
            connection.sendall(more)
        return False
    except ConnectionError:
        return True
    return False
