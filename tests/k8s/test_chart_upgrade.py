"""An upgrade finds what an installation left in the cluster: certificate and address stay."""

from __future__ import annotations

import base64
import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from chart_render import NAMESPACE, Rendered, needs_library, render_in

pytestmark = needs_library

KINDS = (("secrets", "Secret"), ("services", "Service"))
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "v1",
    "resources": [
        {"name": name, "kind": kind, "namespaced": True, "singularName": "", "verbs": ["get"]}
        for name, kind in KINDS
    ],
}
ADDRESS = "10.96.17.4"


@contextmanager
def cluster(*objects: dict[str, Any]) -> Iterator[str]:
    """The kubeconfig of an API server that holds these Secrets and Services."""
    plurals = {kind: name for name, kind in KINDS}
    found = {
        f"/api/v1/namespaces/{NAMESPACE}/{plurals[o['kind']]}/{o['metadata']['name']}": o
        for o in objects
    } | {
        "/api/v1": RESOURCES,
        "/api": {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = found.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if answer is None else answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield kubeconfig(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def kubeconfig(address: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        }
    )


def installed(secret: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    yield {
        "kind": "Service",
        "apiVersion": "v1",
        "spec": {"clusterIP": ADDRESS},
        "metadata": {"name": "pt-precision-time", "namespace": NAMESPACE},
    }
    if secret is not None:
        yield secret


@pytest.fixture(scope="module")
def first() -> Rendered:
    with cluster() as kubeconfig:
        return render_in(kubeconfig)


def test_the_certificate_is_kept(first: Rendered) -> None:
    with cluster(*installed(first.one("Secret", "-tls"))) as kubeconfig:
        second = render_in(kubeconfig)
    assert second.one("Secret", "-tls") == first.one("Secret", "-tls")
    authority = second.extender()["tlsConfig"]["caData"]
    assert authority == first.extender()["tlsConfig"]["caData"]


@pytest.mark.parametrize("damage", ["key lost", "soon over"])
def test_a_certificate_that_will_not_do_is_replaced_as_a_whole(
    first: Rendered, damage: str
) -> None:
    secret = copy.deepcopy(first.one("Secret", "-tls"))
    if damage == "key lost":
        del secret["data"]["tls.key"]
    else:
        secret["metadata"]["annotations"]["precision-time.io/expires"] = str(
            int(time.time()) + 300 * 86400
        )
    with cluster(*installed(secret)) as kubeconfig:
        second = render_in(kubeconfig)
    assert second.secret()["ca.crt"] != first.secret()["ca.crt"]
    assert base64.b64decode(second.extender()["tlsConfig"]["caData"]) == second.secret()["ca.crt"]


def test_the_scheduler_gets_the_address_of_the_service(first: Rendered) -> None:
    assert first.extender()["urlPrefix"] == f"https://pt-precision-time.{NAMESPACE}.svc:443/v1"
    with cluster(*installed()) as kubeconfig:
        second = render_in(kubeconfig)
    assert second.extender()["urlPrefix"] == f"https://{ADDRESS}:443/v1"


def test_the_authority_of_cert_manager_is_found_once_it_is_issued() -> None:
    values = {"certificates": {"source": "certManager"}}
    issued = {
        "kind": "Secret",
        "apiVersion": "v1",
        "data": {"ca.crt": base64.b64encode(b"CA").decode()},
        "metadata": {"name": "pt-precision-time-tls", "namespace": NAMESPACE},
    }
    with cluster() as kubeconfig:
        before = render_in(kubeconfig, values).extender()["tlsConfig"]
    with cluster(*installed(issued)) as kubeconfig:
        after = render_in(kubeconfig, values).extender()["tlsConfig"]
    assert before["caFile"] == "/etc/kubernetes/precision-time/ca.crt"
    assert base64.b64decode(after["caData"]) == b"CA"
