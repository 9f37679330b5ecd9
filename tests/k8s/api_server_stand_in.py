"""An HTTP server that answers as a Kubernetes API server does: nodes, pods, Jobs and events."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonpatch
import yaml
from kubernetes.client import ApiClient, Configuration

POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)")
LOG = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log")
CONFIG_MAP = re.compile(r"/api/v1/namespaces/[^/]+/configmaps/[^/]+")
JOB = re.compile(r"/apis/batch/v1/namespaces/([^/]+)/jobs/([^/]+)")
EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TIME = re.compile(r"[\d-]{10}T[\d:]{8}(\.\d+)?(Z|[+-]\d\d:\d\d)")
MERGE_PATCHES = ("application/strategic-merge-patch+json", "application/merge-patch+json")

# What is listed and watched over all namespaces, by its path.
NODES, PODS, JOBS = "/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs"
SLICES, CLASSES = (
    f"/apis/resource.k8s.io/v1/{name}" for name in ("resourceslices", "deviceclasses")
)
LISTED = (NODES, PODS, JOBS, SLICES, CLASSES)

CUT = object()  # a watcher that gets this has its connection closed in the middle of a line


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]

    @property
    def is_list(self) -> bool:
        return self.path in LISTED and "watch" not in self.query

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("true", "True", "1")


@dataclass
class Faults:
    """What goes wrong next; each status answers one request."""

    statuses: deque[int] = field(default_factory=deque)
    retry_after: str | None = None
    delay_s: float = 0.0
    list_body: bytes | None = None
    ending_watches: bool = False  # each watch ends as soon as it began
    expired_status: int = 200  # 200: an ERROR event in the stream; 410: the answer's status


@dataclass
class Collection:
    """The objects of one kind by name, and who watches them."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, bytes]] = field(default_factory=list)
    snapshots: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    watchers: list[Queue[Any]] = field(default_factory=list)


class StandIn:
    """The cluster's state, and what was asked of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 100
        self.oldest = 0
        self.config_map: dict[str, str] = {}
        self.collections = {path: Collection() for path in LISTED}
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.logs: dict[tuple[str, str], str] = {}
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.faults = Faults()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return self.collections[NODES].objects

    @property
    def watchers(self) -> list[Queue[Any]]:
        return [watcher for c in self.collections.values() for watcher in c.watchers]

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.stand_in = self  # type: ignore[attr-defined]
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Away at once: the port refuses, open streams break."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()  # type: ignore[attr-defined]
        with self.lock:
            for collection in self.collections.values():
                collection.watchers.clear()

    def client(self) -> ApiClient:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self.port}"
        return ApiClient(configuration)

    def kubeconfig(self, folder: Path) -> Path:
        """A file that names it."""
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "it",
                    "clusters": [
                        {"name": "here", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "me", "user": {}}],
                    "contexts": [{"name": "it", "context": {"cluster": "here", "user": "me"}}],
                }
            )
        )
        return path

    def fill(self, nodes: list[dict[str, Any]]) -> None:
        """Nodes that are there from the start, without events."""
        with self.lock:
            for node in nodes:
                self.version += 1
                self.nodes[node["metadata"]["name"]] = self._stamped(node)

    def put(self, obj: dict[str, Any], path: str = NODES) -> None:
        with self.lock:
            self.version += 1
            objects, name = self.collections[path].objects, obj["metadata"]["name"]
            kind = "MODIFIED" if name in objects else "ADDED"
            objects[name] = self._stamped(obj)
            self._tell(kind, objects[name], path)

    def delete(self, name: str, path: str = NODES) -> None:
        with self.lock:
            self.version += 1
            self._tell("DELETED", self._stamped(self.collections[path].objects.pop(name)), path)

    def bookmark(self) -> None:
        with self.lock:
            self.version += 1
            self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}, NODES)

    def expire(self) -> None:
        """Forget what led here: older versions cannot be watched from, nor lists continued."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            for collection in self.collections.values():
                collection.history.clear()
                collection.snapshots.clear()

    def send(self, line: bytes | object) -> None:
        """The same bytes, or CUT, to everyone who watches."""
        with self.lock:
            for watcher in self.watchers:
                watcher.put(line)

    def asked(self, kind: str) -> int:
        with self.lock:
            return sum(getattr(request, f"is_{kind}") for request in self.requests)

    def _stamped(self, node: dict[str, Any]) -> dict[str, Any]:
        metadata = {**node["metadata"], "resourceVersion": str(self.version)}
        return {**node, "metadata": metadata}

    def _tell(self, kind: str, obj: dict[str, Any], path: str) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        self.collections[path].history.append((self.version, line))
        for watcher in self.collections[path].watchers:
            watcher.put(line)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the tests."""

    def close_connections(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """The tests keep their own record."""

    @property
    def api(self) -> StandIn:
        return self.server.stand_in  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        if (request := self._begun()) is None:
            return
        collection = self.api.collections.get(request.path)
        if match := POD.fullmatch(request.path):
            pod = self.api.pods.get((match[1], match[2]))
            self._status(404) if pod is None else self._json(200, pod)
        elif match := LOG.fullmatch(request.path):
            said = self.api.logs.get((match[1], match[2]))
            self._status(403) if said is None else self._send(200, said.encode())
        elif CONFIG_MAP.fullmatch(request.path):
            self._json(200, {"metadata": {"name": "kept"}, "data": self.api.config_map})
        elif collection is None:
            self._status(404)
        elif request.is_watch:
            self._watch(collection, request.query)
        else:
            self._list(collection, request.query)

    def do_PATCH(self) -> None:
        body = self._body()
        if (request := self._begun()) is None:
            return
        if CONFIG_MAP.fullmatch(request.path):
            self.api.config_map |= body["data"]
            return self._json(200, {})
        if match := JOB.fullmatch(request.path):
            return self._json_patch(match[2], body)
        match = POD.fullmatch(request.path)
        with self.api.lock:
            pod = self.api.pods.get((match[1], match[2])) if match else None
            if pod is None:
                return self._status(404)
            if self.headers["Content-Type"] not in MERGE_PATCHES:
                return self._status(415)
            metadata = body["metadata"]
            if metadata.get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
                return self._status(409)
            pod["metadata"].setdefault("annotations", {}).update(metadata["annotations"])
        return self._json(200, pod)

    def _json_patch(self, name: str, operations: Any) -> None:
        if self.headers["Content-Type"] != "application/json-patch+json":
            return self._status(415)
        try:
            jobs = self.api.collections[JOBS].objects
            patched = jsonpatch.apply_patch(jobs[name], operations)
        except (KeyError, jsonpatch.JsonPatchTestFailed):
            return self._status(422)
        self.api.put(patched, JOBS)
        return self._json(200, patched)

    def do_POST(self) -> None:
        body = self._body()
        if (request := self._begun()) is None:
            return
        match = EVENTS.fullmatch(request.path)
        if match is None:
            return self._status(404)
        if (why := _refused(body, match[1])) is not None:
            return self._status(422, why)
        key = (match[1], body["metadata"]["name"])
        with self.api.lock:
            if key in self.api.events:
                return self._status(409)
            self.api.events[key] = body
        return self._json(201, body)

    def _begun(self) -> Request | None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        request = Request(self.command, parts.path, query)
        with self.api.lock:
            self.api.requests.append(request)
            faults = self.api.faults
            status = faults.statuses.popleft() if faults.statuses else None
        time.sleep(faults.delay_s)
        if status is None:
            return request
        self._status(status)
        return None

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _status(self, status: int, message: str = "") -> None:
        self._json(
            status, {"kind": "Status", "code": status, "reason": str(status), "message": message}
        )

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503) and self.api.faults.retry_after is not None:
            self.send_header("Retry-After", self.api.faults.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def _list(self, collection: Collection, query: dict[str, str]) -> None:
        if self.api.faults.list_body is not None:
            return self._send(200, self.api.faults.list_body)
        with self.api.lock:
            token = query.get("continue", "")
            version, _, start = token.partition(":")
            if token and version not in collection.snapshots:
                return self._status(410)
            if not token:
                version = str(self.api.version)
                collection.snapshots[version] = list(collection.objects.values())
            snapshot = collection.snapshots[version]
        first, size = int(start or 0), int(query.get("limit", len(snapshot) or 1))
        after = first + size
        metadata = {"resourceVersion": version}
        if after < len(snapshot):
            metadata |= {"continue": f"{version}:{after}"}
        return self._json(
            200, {"kind": "List", "metadata": metadata, "items": snapshot[first:after]}
        )

    def _watch(self, collection: Collection, query: dict[str, str]) -> None:
        since = int(query["resourceVersion"])
        queue: Queue[Any] = Queue()
        with self.api.lock:
            expired = since < self.api.oldest
            for version, line in collection.history:
                if version > since:
                    queue.put(line)
            if not expired:
                collection.watchers.append(queue)
        if expired and self.api.faults.expired_status == 410:
            return self._status(410)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if expired:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return self._chunk(b"")
        seconds = float(query.get("timeoutSeconds", "1800"))
        return self._stream(queue, 0.0 if self.api.faults.ending_watches else seconds)

    def _stream(self, queue: Queue[Any], seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            try:
                line = queue.get(timeout=left)
            except Empty:
                break
            if line is CUT:
                half = b'{"type":"MODIFIED","object":{"metadata":{"na'
                self.wfile.write(b"%x\r\n%s" % (len(half) + 100, half))
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._chunk(line)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _refused(event: dict[str, Any], namespace: str) -> str | None:
    """Why the API server would not take an event (core/v1), or None."""
    if not event.get("reason") or event.get("type") not in ("Normal", "Warning"):
        return "reason and a type are required"
    if len(event["message"].encode()) > 1024 or len(event["reason"]) > 128:
        return "message can have at most 1024 bytes, reason 128"
    if event["involvedObject"].get("namespace") != namespace:
        return "involvedObject.namespace must be that of the event"
    if not NAME.fullmatch(event["metadata"]["name"]) or len(event["metadata"]["name"]) > 253:
        return "metadata.name must be a DNS subdomain"
    if not all(TIME.fullmatch(event[name]) for name in ("firstTimestamp", "lastTimestamp")):
        return "timestamps must be RFC 3339"
    return None


@contextmanager
def served() -> Iterator[StandIn]:
    """A server on a free port of the loopback, gone afterwards."""
    stand_in = StandIn()
    stand_in.start()
    try:
        yield stand_in
    finally:
        stand_in.stop()


def eventually(condition: Any, timeout_s: float = 30.0) -> bool:
    """Whether a condition came true in time."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def kubeconfig(directory: Path, port: int) -> Path:
    path = directory / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path
