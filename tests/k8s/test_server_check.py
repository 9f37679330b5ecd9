"""`precision-time k8s`: what `check` promises, and `serve` with all its parts."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from api_server_stand_in import kubeconfig, served
from click.testing import CliRunner, Result
from k8s_server_process import BF16, CLUSTER, MIXED, Installed, names_body, node, pod

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted


class ApiServer(ThreadingHTTPServer):
    """Answers what `check` asks: reviews of access and the list of nodes."""

    def __init__(self, nodes: list[dict[str, Any]], denied: frozenset[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.nodes, self.denied = nodes, denied


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        assert self.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review["spec"]["resourceAttributes"]
        allowed = f"{asked['verb']} {asked['resource']}" not in self.server.denied
        self._send(201, review | {"status": {"allowed": allowed}})

    def do_GET(self) -> None:
        assert self.path.startswith("/api/v1/nodes")
        if "list nodes" in self.server.denied:
            self._send(403, {"kind": "Status", "message": "no"})
        else:
            asked = {k: int(v[0]) for k, v in parse_qs(urlsplit(self.path).query).items()}
            began = asked.get("continue", 0)
            ended = began + asked["limit"]
            more = {"continue": str(ended)} if ended < len(self.server.nodes) else {}
            page = self.server.nodes[began:ended]
            self._send(200, {"kind": "NodeList", "metadata": more, "items": page})

    def _send(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def api_server(
    directory: Path, nodes: list[dict[str, Any]] = CLUSTER, denied: tuple[str, ...] = ()
) -> Iterator[Path]:
    """A kubeconfig file for an API server."""
    server = ApiServer(nodes, frozenset(denied))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield kubeconfig(directory, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["k8s", *map(str, arguments)])


def check(*arguments: object) -> tuple[int, dict[str, str]]:
    """The exit code, and the lines that failed by what they promise."""
    result = run("check", *arguments)
    failed = [re.fullmatch(r"FAILED  (.*?): (.*)", text) for text in result.output.splitlines()]
    return result.exit_code, {m[1]: m[2] for m in failed if m is not None}


def test_with_all_rights_every_promise_about_the_cluster_is_kept(tmp_path: Path) -> None:
    with api_server(tmp_path) as file:
        result = run("check", "--kubeconfig", file)
    assert result.exit_code == 0, result.output
    assert "ok      the account may watch nodes (to know the GPUs)" in result.output
    assert "7 nodes are listed, 6 of them with GPUs that we know" in result.output


@pytest.mark.parametrize(
    "right", ["list nodes", "watch nodes", "list pods", "patch jobs", "create events"]
)
def test_a_right_that_lacks_is_named_with_the_rule_that_grants_it(
    tmp_path: Path, right: str
) -> None:
    with api_server(tmp_path, denied=(right,)) as file:
        code, failed = check("--kubeconfig", file)
    assert code == 1
    text, remedy = next((t, r) for t, r in failed.items() if f"may {right}" in t)
    verb, resource = right.split()
    assert f"verbs [{verb}], resources [{resource}]" in remedy, text


def test_rights_that_the_configuration_does_not_need_are_not_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("annotate: {pods: false, events: false}\ndeadline: {follow: false}")
    with api_server(tmp_path, denied=("patch pods", "create events")) as file:
        assert check("--config", config, "--kubeconfig", file) == (0, {})


def test_nodes_without_labels_and_unknown_products_are_told_with_what_to_do(tmp_path: Path) -> None:
    with api_server(tmp_path, nodes=[node("bare")]) as file:
        failed = check("--kubeconfig", file)[1]
        assert "GPU feature discovery" in failed["1 nodes are listed, 0 of them with GPUs"]
    strange = node("strange", "t4")
    strange["metadata"]["labels"]["nvidia.com/gpu.product"] = "Quantum-9000"
    with api_server(tmp_path, nodes=[strange]) as file:
        failed = check("--kubeconfig", file)[1]
        assert "Quantum-9000" in failed["1 nodes are listed, 1 of them with GPUs"]


def test_nodes_are_counted_to_the_last(tmp_path: Path) -> None:
    many = [*(node(f"cpu-{i}") for i in range(1200)), node("t4-last", "t4")]
    with api_server(tmp_path, nodes=many) as file:
        result = run("check", "--kubeconfig", file)
    assert result.exit_code == 0, result.output
    assert "1201 nodes are listed, 1 of them with GPUs that we know" in result.output


def test_an_api_server_that_is_away_is_one_failed_promise(tmp_path: Path) -> None:
    code, failed = check("--kubeconfig", kubeconfig(tmp_path, 1))
    assert code == 1
    assert "SelfSubjectAccessReview" in failed["the API server answers"]


def test_an_impossible_kubeconfig_is_an_error_of_the_argument(tmp_path: Path) -> None:
    for name in (tmp_path / "absent", "in-cluster"):
        assert run("check", "--kubeconfig", name).exit_code == 2
        assert run("serve", "--kubeconfig", name).exit_code == 2


def test_check_config_reads_configuration_and_rules_and_ends(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("prioritize: {policy: reserve}")
    result = run("check", "--config", config)
    assert (result.exit_code, result.output) == (0, "ok      the configuration can be used\n")
    config.write_text(f"rules: {tmp_path / 'absent.yaml'}")
    result = run("check", "--config", config)
    assert result.exit_code == 2
    assert "absent.yaml" in result.output
    config.write_text("prioritize: {policy: luck}")
    assert "prioritize.policy='luck'" in run("check", "--config", config).output


def test_serve_watches_nodes_decides_and_writes_on_the_pod(fitted: Fitted, tmp_path: Path) -> None:
    train = pod("train", MIXED)
    with served() as api:
        api.fill(CLUSTER)
        api.pods["default", "train"] = train
        server = Installed(tmp_path / "s")
        server.kubeconfig = kubeconfig(tmp_path, api.port)
        with contextlib.closing(server):
            server.start().wait_ready()
            answer = server.post("/v1/filter", names_body(train, ["a100-0", "t4-0"]))[1]
            assert answer["NodeNames"] == ["a100-0", "t4-0"]
            refused = server.post("/v1/filter", names_body(pod("bf16", BF16), ["t4-0"]))[1]
            assert list(refused["FailedAndUnresolvableNodes"]) == ["t4-0"]
            api.put(node("born", "t4"))
            while (
                server.post("/v1/filter", names_body(pod("bf16", BF16), ["born"]))[1]["NodeNames"]
                != []
            ):
                assert server.process.poll() is None
            assert server.end() == 0
        written = api.pods["default", "train"]["metadata"]["annotations"]
        assert "precision-time.io/predicted-duration" in written
        assert [e["involvedObject"]["name"] for e in api.events.values()] == ["bf16"]
