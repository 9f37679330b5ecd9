"""A server as a process of its own: started, asked, signalled, waited for."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from forked import Forked, forked

STAND_IN = Path(__file__).with_name("k8s_server_stand_in.py")
PAYLOADS = Path(__file__).with_name("payloads")
START_S, STOP_S = 60.0, 30.0

GFD = {
    "a100": {"product": "NVIDIA-A100-SXM4-40GB", "memory": "40960", "major": "8", "minor": "0"},
    "v100": {"product": "Tesla-V100-SXM2-16GB", "memory": "16384", "major": "7", "minor": "0"},
    "p100": {"product": "Tesla-P100-PCIE-16GB", "memory": "16384", "major": "6", "minor": "0"},
    "t4": {"product": "Tesla-T4", "memory": "15360", "major": "7", "minor": "5"},
}


def node(name: str, gpu: str | None = None, count: int = 4) -> dict[str, Any]:
    """A node of the API; ``gpu`` names its labels of GPU feature discovery."""
    labels = {"kubernetes.io/hostname": name}
    if gpu is not None:
        said = GFD[gpu]
        labels |= {
            "nvidia.com/gpu.product": said["product"],
            "nvidia.com/gpu.memory": said["memory"],
            "nvidia.com/gpu.count": str(count),
            "nvidia.com/gpu.compute.major": said["major"],
            "nvidia.com/gpu.compute.minor": said["minor"],
        }
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": str(count)} if gpu else {}},
    }


CLUSTER = [
    node("a100-0", "a100"),
    node("a100-1", "a100"),
    node("v100-0", "v100"),
    node("v100-1", "v100"),
    node("p100-0", "p100"),
    node("t4-0", "t4"),
    node("cpu-0"),
]


def captured(name: str) -> dict[str, Any]:
    """A captured call: request headers, request body and the answer that the scheduler took."""
    found: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


def pod(name: str = "train", said: Mapping[str, str] | None = None, gpus: int = 1) -> Any:
    """A pod that asks for GPUs; ``said`` are keys of our grammar, as annotations."""
    annotations = {f"precision-time.io/{key}": value for key, value in (said or {}).items()}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "annotations": annotations,
        },
        "spec": {
            "containers": [
                {"name": "train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
            ]
        },
    }


MIXED = {"model": "resnet50", "precision": "amp", "batch-size": "128", "epochs": "90"}
BF16 = {"model": "bert-large", "precision": "bf16-mixed", "batch-size": "8", "steps": "1000"}


def names_body(pod_: Any, names: list[str]) -> bytes:
    return json.dumps({"Pod": pod_, "Nodes": None, "NodeNames": names}).encode()


class ServerProcess:
    """A server in a directory of its own; over TLS where ``tls`` has a context."""

    def __init__(self, directory: Path, tls: ssl.SSLContext | None = None, **config: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.tls = tls
        self.config_file = directory / "config.yaml"
        self.nodes_file = directory / "nodes.json"
        self.log_file = directory / "log"
        self._server = {"host": "127.0.0.1", "port": 0, "metrics_port": 0, "drain_s": 0.0}
        self._server |= config.pop("server", {})
        self.write_config(**config)
        self.ports: list[int] = []

    def write_config(self, **config: Any) -> None:
        new = self.config_file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"server": self._server} | config))
        new.replace(self.config_file)

    def list_nodes(self, nodes: list[dict[str, Any]] = CLUSTER) -> None:
        """From now on the table is whole."""
        new = self.nodes_file.with_suffix(".new")
        new.write_text(json.dumps({"items": nodes}))
        new.replace(self.nodes_file)

    def start(self) -> ServerProcess:
        """Start it and wait until it listens."""
        self.process: Forked | subprocess.Popen[bytes] = forked(
            STAND_IN, str(self.config_file), str(self.nodes_file), log=self.log_file
        )
        self.ports = self.wait_for_event(lambda e: e["event"] == "listening")["ports"]
        return self

    def wait_ready(self) -> ServerProcess:
        until = time.monotonic() + START_S
        while self.get("/readyz")[0] != 200:
            assert time.monotonic() < until, self.log_file.read_text()
            time.sleep(0.05)
        return self

    def connect(self, timeout_s: float = 20.0) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.ports[0], timeout=timeout_s, context=self.tls
            )
        return http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=timeout_s)

    def raw(self, timeout_s: float = 40.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[0]), timeout_s)

    def get(self, path: str, *, metrics: bool = False) -> tuple[int, bytes]:
        port = self.ports[1 if metrics else 0]
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20.0)
        with contextlib.closing(plain if metrics else self.connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """Status and decoded JSON of a call on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            return call(connection, path, body, headers)

    def rss_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def events(self) -> list[dict[str, Any]]:
        """What it has logged, in whole lines."""
        lines = self.log_file.read_text().splitlines(keepends=True)
        return [json.loads(x) for x in lines if x.startswith("{") and x.endswith("\n")]

    def wait_for_event(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event of its log that is meant, once it is there."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            for event in self.events():
                if found(event):
                    return event
            assert self.process.poll() is None, self.log_file.read_text()
            time.sleep(0.05)
        raise AssertionError(f"no such event in {self.log_file.read_text()[-2000:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_S)


class Installed(ServerProcess):
    """The server as it is installed: `precision-time k8s serve`, with an API server."""

    kubeconfig: Path

    def start(self) -> ServerProcess:
        command = ["k8s", "serve", "--config", self.config_file, "--kubeconfig", self.kubeconfig]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from predictor.cli.main import main; main()", *command],
                stderr=log,
            )
        self.ports = self.wait_for_event(lambda e: e["event"] == "listening")["ports"]
        return self


@contextmanager
def serving(
    directory: Path,
    tls: ssl.SSLContext | None = None,
    nodes: list[dict[str, Any]] | None = CLUSTER,
    **config: Any,
) -> Iterator[ServerProcess]:
    """A server that is ready (that listens, where ``nodes`` is None), ended with the block."""
    server = ServerProcess(directory, tls, **config)
    if nodes is not None:
        server.list_nodes(nodes)
    try:
        server.start()
        yield server if nodes is None else server.wait_ready()
    finally:
        server.close()


def call(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Status and decoded JSON of one call on an open connection."""
    connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    raw = answer.read()
    if answer.getheader("Content-Encoding") == "gzip":
        raw = gzip.decompress(raw)
    return answer.status, json.loads(raw)
