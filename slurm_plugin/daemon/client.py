"""The other end of the socket: a request sent, its answer read."""

from __future__ import annotations

import socket
from dataclasses import fields
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from ..errors import ProtocolError, SlurmError
from ..protocol import (
    ENVIRONMENT_PREFIX,
    MAX_ANSWER_BYTES,
    OLD_PREFIX,
    VERSION,
    HookAnswer,
    HookRequest,
    PartitionRequest,
)

TIMEOUT_S = 5.0
_NUMBERS = {"time_limit", "time_min", "ttl_s", "delay", "other_delay", "since"}
_NOT_PLAIN = {"partitions", "usable_partitions", "argv", "environment", "old"}


def encode_request(request: HookRequest) -> bytes:
    """The line that ``parse_request`` reads as this request."""
    pairs: list[tuple[str, object]] = [("v", VERSION)]
    for name in (f.name for f in fields(request)):
        value = getattr(request, name)
        if name not in _NOT_PLAIN and value is not None:
            pairs.append((name, value))
    pairs += [("argv", word) for word in request.argv]
    pairs += [(ENVIRONMENT_PREFIX + key, value) for key, value in request.environment.items()]
    pairs += [(OLD_PREFIX + key, value) for key, value in request.old.items()]
    if request.partitions:
        pairs.append(("partitions", ",".join(map(_partition, request.partitions))))
    if request.usable_partitions:
        pairs.append(("usable_partitions", ",".join(request.usable_partitions)))
    return (urlencode(pairs, encoding="utf-8", errors="replace") + "\n").encode("ascii")


def parse_answer(line: bytes) -> HookAnswer:
    """The answer a line holds; raises ProtocolError."""
    pairs = dict(parse_qsl(line.decode("utf-8", "replace").rstrip("\n"), keep_blank_values=True))
    if pairs.pop("v", None) != str(VERSION) or "log" not in pairs:
        raise ProtocolError(f"{line[:80]!r} is no answer of a daemon of version {VERSION}")
    known = {f.name for f in fields(HookAnswer)}
    try:
        stated = {k: int(v) if k in _NUMBERS else v for k, v in pairs.items() if k in known}
        return HookAnswer(**stated)  # type: ignore[arg-type]
    except ValueError as error:
        raise ProtocolError(f"an answer holds no number: {error}") from None


def ask(path: Path, request: HookRequest, timeout_s: float = TIMEOUT_S) -> HookAnswer:
    """The daemon's answer; raises SlurmError where nobody answers, and ProtocolError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(timeout_s)
        try:
            asking.connect(str(path))
            asking.sendall(encode_request(request))
            line = _line(asking)
        except OSError as error:
            raise SlurmError(f"{path}: {error.strerror or error}") from None
    if not line:
        raise SlurmError(f"{path}: the daemon closed the connection: may this user ask?")
    return parse_answer(line)


def _line(asking: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) <= MAX_ANSWER_BYTES:
        part = asking.recv(MAX_ANSWER_BYTES)
        if not part:
            break
        line += part
    return line


def _partition(part: PartitionRequest) -> str:
    most = "inf" if part.max_min is None else part.max_min
    return f"{part.name}:{'' if part.default_min is None else part.default_min}:{most}"
