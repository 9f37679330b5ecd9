"""From start to end: readiness, changed files, and leaving without losing a call."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from k8s_certificates import Volume, openssl, self_signed
from k8s_server_process import BF16, MIXED, ServerProcess, call, names_body, pod, serving

from predictor.estimate.fitting import Fitted

PAYLOADS = Path(__file__).parent / "payloads"
PATIENCE_S = 30.0
ASKED = ["a100-0", "p100-0"]


@pytest.fixture(autouse=True)
def predictor(fitted: Fitted) -> None:
    """Every server here loads the predictor of this test run."""


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def ask(server: ServerProcess, name: str = "train") -> dict[str, int]:
    status, answer = server.post("/v1/prioritize", names_body(pod(name, MIXED), ASKED))
    assert status == 200
    return {each["Host"]: each["Score"] for each in answer}


@pytest.fixture(scope="module")
def shared(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("shared") / "s") as server:
        yield server


@pytest.fixture
def steady(shared: ServerProcess) -> Iterator[ServerProcess]:
    """A server that others use too; it has its first configuration again behind each test."""
    first = ask(shared)
    yield shared
    shared.write_config()
    eventually(lambda: ask(shared) == first)


def test_until_the_nodes_are_listed_it_is_alive_but_not_ready_and_every_node_passes(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "s", nodes=None) as server:
        assert server.get("/livez")[0] == 200
        status, body = server.get("/readyz")
        assert status == 503
        assert "the nodes are not listed yet" in json.loads(body)["reasons"]
        status, answer = server.post("/v1/filter", names_body(pod("early", BF16), ASKED))
        assert (status, answer["NodeNames"]) == (200, ASKED)
        assert ask(server, "early") == dict.fromkeys(ASKED, 0)
        server.list_nodes()
        server.wait_ready()


def test_a_predictor_that_is_not_there_is_named_by_readyz(tmp_path: Path) -> None:
    with serving(tmp_path / "s", nodes=None, predictor_version="no-such-version") as server:
        server.list_nodes()
        eventually(lambda: b"no-such-version" in server.get("/readyz")[1])
        assert server.get("/readyz")[0] == 503


def test_nodes_not_heard_of_for_long_are_a_warning_while_answers_go_on(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "s")
    server.write_config(nodes={"stale_s": 0.05})
    server.list_nodes()
    try:
        server.start().wait_ready()
        eventually(lambda: b"nodes were last heard of" in server.get("/readyz")[1])
        assert server.get("/readyz")[0] == 200
        assert ask(server)["a100-0"] == 10
    finally:
        server.close()


def test_a_new_policy_is_used_without_a_restart(steady: ServerProcess) -> None:
    assert ask(steady)["a100-0"] == 10
    done = reloads_of(steady)
    steady.write_config(prioritize={"max_score": 100})
    eventually(lambda: ask(steady)["a100-0"] == 100)
    assert reloads_of(steady) == done + 1


def test_observing_refuses_and_ranks_nothing_and_counts_what_it_would_have_done(
    steady: ServerProcess,
) -> None:
    body = names_body(pod("observed", BF16), ASKED)
    steady.write_config(mode="observe")
    eventually(lambda: ask(steady) == dict.fromkeys(ASKED, 0))
    before = counted(steady)
    assert steady.post("/v1/filter", body)[1]["NodeNames"] == ASKED
    eventually(lambda: counted(steady)["kept_off"] == before["kept_off"] + 1)
    assert counted(steady)["nodes_refused"] == before["nodes_refused"]
    assert "precision_time_k8s_observing 1.0" in metrics_of(steady)


def test_a_wrong_configuration_leaves_the_old_one_in_use(steady: ServerProcess) -> None:
    steady.write_config(prioritize={"max_score": 50})
    eventually(lambda: ask(steady)["a100-0"] == 50)
    for wrong in ({"prioritize": {"max_score": "many"}}, {"no_such_key": 1}):
        steady.write_config(**wrong)
        key = next(iter(wrong))
        steady.wait_for_event(lambda e, key=key: "is kept" in e["event"] and key in e["event"])
        assert ask(steady)["a100-0"] == 50
    steady.config_file.unlink()
    steady.wait_for_event(lambda e: "No such file" in e["event"])
    steady.write_config(prioritize={"max_score": 20})
    eventually(lambda: ask(steady)["a100-0"] == 20)


def test_a_config_map_that_swaps_its_links_is_read_anew(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "volume")
    server = ServerProcess(tmp_path / "s")
    plain = yaml.safe_load(server.config_file.read_text())
    volume.write(config_yaml=yaml.safe_dump(plain).encode())
    server.config_file = volume.directory / "config.yaml"
    server.list_nodes()
    try:
        server.start().wait_ready()
        assert ask(server)["a100-0"] == 10
        volume.write(config_yaml=yaml.safe_dump(plain | {"prioritize": {"max_score": 7}}).encode())
        eventually(lambda: ask(server)["a100-0"] == 7)
    finally:
        server.close()


def test_site_rules_are_read_anew_with_the_configuration(
    steady: ServerProcess, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    job = {"model": "resnet50", "precision": "amp", "batch": 128, "epochs": 90}
    rules.write_text(yaml.safe_dump({"rules": [{"name": "r", "match": {"name": "x"}, "job": job}]}))
    steady.write_config(rules=str(rules), prioritize={"max_score": 30})
    eventually(lambda: ask(steady)["a100-0"] == 30)
    silent = names_body(pod("nightly"), ASKED)
    assert steady.post("/prioritize", silent)[1][0]["Score"] == 0
    new = {"name": "r", "match": {"name": "^nightly"}, "job": job}
    rules.write_text(yaml.safe_dump({"rules": [new]}))
    eventually(lambda: steady.post("/prioritize", silent)[1][0]["Score"] == 30)


def test_a_changed_map_of_products_reads_the_nodes_anew(steady: ServerProcess) -> None:
    assert ask(steady)["p100-0"] < 10
    steady.write_config(hardware={"products": {"Tesla-P100-PCIE-16GB": "a100-sxm4-80gb"}})
    eventually(lambda: ask(steady)["p100-0"] >= ask(steady)["a100-0"])


def test_sigterm_before_anything_is_loaded_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "s", nodes=None, server={"drain_s": 600.0}) as server:
        assert server.end() == 0
        assert "draining" not in [e["event"] for e in server.events()]


def test_while_it_drains_it_is_not_ready_and_still_answers(tmp_path: Path) -> None:
    with serving(tmp_path / "s", server={"drain_s": 3.0}) as server:
        with contextlib.closing(server.connect()) as kept:
            body = names_body(pod("draining", MIXED), ASKED)
            assert call(kept, "/v1/filter", body)[0] == 200
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: server.get("/readyz")[0] == 503)
            assert b"shutting down" in server.get("/readyz")[1]
            kept.request("POST", "/v1/filter", body)
            answer = kept.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["NodeNames"] == ASKED
            assert answer.getheader("Connection") == "close"
            assert server.post("/v1/filter", body)[0] == 200
        assert server.process.wait(PATIENCE_S) == 0


def test_a_draining_server_that_nobody_asks_any_more_does_not_wait_to_the_end(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "s", server={"drain_s": 600.0}) as server:
        assert server.end() == 0
        assert [e["event"] for e in server.events()][-1] == "ended"


def test_no_call_is_lost_when_a_server_is_told_to_end(tmp_path: Path) -> None:
    filtered = names_body(pod("under-load", MIXED), [f"n{i}" for i in range(2000)])
    reviewed = (PAYLOADS / "admissionreview-pod-request.json").read_bytes()
    calls = ("/v1/filter", filtered), ("/v1/place", reviewed)
    failures: list[object] = []
    counts = [0, 0]
    with serving(tmp_path / "s", server={"drain_s": 2.0}) as server:
        ending = threading.Event()

        def client(i: int) -> None:
            while not ending.is_set():
                try:
                    status, answer = server.post(*calls[i])
                except OSError as error:
                    failures.append(error)
                    return
                whole = answer["response"]["allowed"] if i else len(answer["NodeNames"]) == 2000
                if status != 200 or not whole:
                    failures.append((status, answer))
                counts[i] += 1

        threads = [threading.Thread(target=client, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: min(counts) > 10)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/readyz")[0] == 503)
        before = list(counts)
        eventually(lambda: all(now > then for now, then in zip(counts, before, strict=True)))
        ending.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert server.process.wait(PATIENCE_S) == 0
    assert not failures


def test_an_address_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        server = ServerProcess(tmp_path / "s", server={"port": port})
        with pytest.raises(AssertionError, match="cannot be listened on"):
            server.start()
        server.close()


@openssl
def test_new_handshakes_get_the_new_certificate_while_old_connections_go_on(tmp_path: Path) -> None:
    old, new = (self_signed(tmp_path / n, n) for n in ("old", "new"))
    volume = Volume(tmp_path / "volume")
    volume.write_pair(old)
    tls = {
        "certificate": str(volume.directory / "tls.crt"),
        "key": str(volume.directory / "tls.key"),
    }
    body = names_body(pod("tls", MIXED), ASKED)
    with (
        serving(tmp_path / "s", old.trusted(), server=tls) as server,
        contextlib.closing(server.connect()) as kept,
    ):
        assert call(kept, "/v1/filter", body)[0] == 200
        volume.write_pair(new)
        server.wait_for_event(lambda e: e["event"] == "certificate read anew")
        with pytest.raises(ssl.SSLCertVerificationError):
            server.post("/v1/filter", body)
        server.tls = new.trusted()
        assert server.post("/v1/filter", body)[0] == 200
        assert call(kept, "/v1/filter", body)[0] == 200
        assert 'file="certificate",outcome="done"} 1.0' in metrics_of(server)


@openssl
def test_a_broken_pair_leaves_the_old_certificate_in_use(tmp_path: Path) -> None:
    old, new = (self_signed(tmp_path / n, n) for n in ("old", "new"))
    volume = Volume(tmp_path / "volume")
    volume.write_pair(old)
    tls = {
        "certificate": str(volume.directory / "tls.crt"),
        "key": str(volume.directory / "tls.key"),
    }
    broken = {
        "a key of another": {
            "tls_crt": new.certificate.read_bytes(),
            "tls_key": old.key.read_bytes(),
        },
        "nothing": {"tls_crt": b"", "tls_key": b""},
        "no PEM": {"tls_crt": b"\x00\xff", "tls_key": b"\x00\xff"},
    }
    body = names_body(pod("tls", MIXED), ASKED)
    with serving(tmp_path / "s", old.trusted(), server=tls) as server:
        for i, files in enumerate(broken.values(), 1):
            volume.write(**files)
            refused = f'file="certificate",outcome="refused"}} {float(i)}'
            eventually(lambda text=refused: text in metrics_of(server))
            assert server.post("/v1/filter", body)[0] == 200
        volume.write_pair(new)
        eventually(lambda: 'file="certificate",outcome="done"} 1.0' in metrics_of(server))
        server.tls = new.trusted()
        assert server.post("/v1/filter", body)[0] == 200


@openssl
def test_with_a_client_ca_only_clients_it_signed_are_answered(tmp_path: Path) -> None:
    ours, client, stranger = (self_signed(tmp_path / n, n) for n in ("ours", "client", "stranger"))
    tls = {
        "certificate": str(ours.certificate),
        "key": str(ours.key),
        "client_ca": str(client.certificate),
    }
    body = names_body(pod("tls", MIXED), ASKED)
    with serving(tmp_path / "s", ours.trusted(client), server=tls) as server:
        assert server.post("/v1/filter", body)[0] == 200
        for context in (ours.trusted(), ours.trusted(stranger)):
            server.tls = context
            with pytest.raises(OSError, match=r"(?i)certificate|reset|alert|EOF|closed"):
                server.post("/v1/filter", body)
        assert server.get("/readyz", metrics=True)[0] == 200
        os.replace(stranger.certificate, client.certificate)
        server.wait_for_event(lambda e: e["event"] == "certificate read anew")
        server.tls = ssl.create_default_context(cafile=ours.certificate)
        server.tls.load_cert_chain(client.certificate, stranger.key)
        assert server.post("/v1/filter", body)[0] == 200


@openssl
def test_what_is_no_handshake_is_refused_while_others_are_served(tmp_path: Path) -> None:
    ours = self_signed(tmp_path / "ours", "ours")
    tls = {"certificate": str(ours.certificate), "key": str(ours.key)}
    with serving(tmp_path / "s", ours.trusted(), server=tls) as server:
        with contextlib.closing(server.raw()) as plain:
            plain.sendall(b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert not plain.recv(1000).startswith(b"HTTP")
        with contextlib.closing(server.raw()):  # says nothing
            eventually(lambda: ask(server)["a100-0"] == 10)


def reloads_of(server: ServerProcess) -> float:
    count = re.search(
        r'reloads_total{file="configuration",outcome="done"} (\S+)', metrics_of(server)
    )
    return float(count[1]) if count else 0.0


def metrics_of(server: ServerProcess) -> str:
    return server.get("/metrics", metrics=True)[1].decode()


def counted(server: ServerProcess) -> dict[str, float]:
    """Refusals counted so far, of calls and of nodes."""
    page = metrics_of(server)
    return {
        name: sum(
            map(float, re.findall(rf"(?m)^precision_time_k8s_{name}_total{{.*}} (.+)$", page))
        )
        for name in ("kept_off", "nodes_refused")
    }
