"""The processes of the benchmark: each in its directory, ended with the block."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .client import Connection

HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("precision-time")
START_S, STOP_S, POLL_S = 90.0, 15.0, 0.05
# Client and extender on a core each, as on two machines: left to the kernel, one process may share
# the client's core for its whole life, and another not.
CORES = sorted(os.sched_getaffinity(0))
CLIENT_CORES, EXTENDER_CORES = {CORES[0]}, {CORES[-1]}
READY = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of 127.0.0.1 that is its own CA."""

    file: Path
    key: Path

    def trusted(self) -> ssl.SSLContext:
        """A client's context that trusts it alone."""
        return ssl.create_default_context(cafile=self.file)


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens."""

    process: subprocess.Popen[bytes]
    port: int
    certificate: Certificate | None = None

    def connect(self) -> Connection:
        """A new connection."""
        return Connection(self.port, self.certificate.trusted() if self.certificate else None)

    @property
    def resident_bytes(self) -> int:
        """Memory it holds now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def certificate(directory: Path) -> Certificate | None:
    """A new one, made by openssl; None where that is not installed."""
    if shutil.which("openssl") is None:
        return None
    made = Certificate(directory / "tls.crt", directory / "tls.key")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=extender",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-out",
            str(made.file),
            "-keyout",
            str(made.key),
        ],
        check=True,
        capture_output=True,
    )
    return made


@contextmanager
def do_nothing(made: Certificate | None = None) -> Iterator[Server]:
    """The extender that does nothing."""
    files = () if made is None else (str(made.file), str(made.key))
    with _printing(EXTENDER_CORES, HERE / "do_nothing.py", *files) as (process, port):
        yield Server(process, port, made)


@contextmanager
def api_server(nodes: int) -> Iterator[int]:
    """The port of an API server with this many nodes."""
    with _printing(set(CORES), HERE / "api_server.py", str(nodes)) as (_, port):
        yield port


@contextmanager
def ours(
    directory: Path, api_port: int, made: Certificate | None = None, **config: Any
) -> Iterator[Server]:
    """`precision-time k8s serve`, as shipped, once it is ready."""
    directory.mkdir()
    files = {} if made is None else {"certificate": str(made.file), "key": str(made.key)}
    own = {"host": "127.0.0.1", "port": 0, "metrics_port": None, "drain_s": 0.0}
    _write(directory / "config.yaml", {"server": own | files, **config})
    _write(directory / "kubeconfig", _kubeconfig(api_port))
    log = directory / "log"
    argv = [
        str(PROGRAM),
        "k8s",
        "serve",
        "--config",
        str(directory / "config.yaml"),
        "--kubeconfig",
        str(directory / "kubeconfig"),
    ]
    with log.open("wb") as stderr, _started(argv, EXTENDER_CORES, stderr=stderr) as process:
        port = _listening(process, log)
        server = Server(process, port, made)
        _wait_ready(server, log)
        yield server


@contextmanager
def _printing(
    cores: set[int], script: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A script that prints the port it listens on."""
    argv = [sys.executable, str(script), *arguments]
    with _started(argv, cores, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with process.stdout:
            yield process, int(process.stdout.readline())


@contextmanager
def _started(
    argv: Sequence[str], cores: set[int], **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process on some cores, ended with the block."""
    process = subprocess.Popen(argv, **streams)
    os.sched_setaffinity(process.pid, cores)  # its threads start later, and inherit it
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the log tells."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        for event in _events(log):
            if event.get("event") == "listening":
                return int(event["ports"][0])
        time.sleep(POLL_S)
    raise SystemExit(f"the extender does not listen:\n{log.read_text()}")


def _wait_ready(server: Server, log: Path) -> None:
    connection = server.connect()
    until = time.monotonic() + START_S
    while connection.ask(READY).status != 200:
        if time.monotonic() > until:
            raise SystemExit(f"the extender does not get ready:\n{log.read_text()}")
        time.sleep(POLL_S)
    connection.close()


def _events(log: Path) -> Sequence[Mapping[str, Any]]:
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(x) for x in lines if x.startswith("{") and x.endswith("\n")]


def _kubeconfig(port: int) -> dict[str, Any]:
    server = {"server": f"http://127.0.0.1:{port}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": server}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "users": [{"name": "bench", "user": {}}],
    }


def _write(path: Path, value: object) -> None:
    path.write_text(yaml.safe_dump(value))
