"""What the hook asks and what the daemon answers: one form-encoded line each way.

The lines are ``application/x-www-form-urlencoded`` (WHATWG URL, section 5): ``key=value`` joined
by ``&``, ended by a newline, with ``%XX`` for every other byte that could be mistaken. A field
that Slurm leaves unset is absent. Lua reads and writes it in a few lines, and no quoting of a
user's text can break out of it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

from .errors import ProtocolError, SlurmError

VERSION = 1
MAX_REQUEST_BYTES = 256 * 1024
MAX_ANSWER_BYTES = 8 * 1024
MAX_ID_BYTES = 64  # of a decision, which its daemon adds to the log of an answer
MAX_FIELDS = 512
ANSWER_TTL_S = 60
ENVIRONMENT_PREFIX = "env."
KEPT = 256  # texts that are not read anew
_PLAIN = "!$'()*,/:;=?@[]^`{|}"  # of an answer: what cannot end a field is read faster as it is
_OWN = re.compile(rb"&(name|comment|script)=([^&]*)")  # what is another in each job


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A partition the job asked for, or the default one, as slurmctld knows it.

    Times are in minutes; ``None`` for a DefaultTime that is unset and a MaxTime without bound.
    """

    name: str
    default_min: int | None
    max_min: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """One submitted job.

    Memory is in MiB; ``waits`` is 1 where the job may not start yet for another reason than the
    queue. Texts are as the user wrote them, ``None`` where Slurm has none. Times are in minutes,
    with ``inf`` for UNLIMITED. ``script`` is at most the first 64 KiB of the batch script.
    ``within`` are the milliseconds that the hook waits for the answer.
    """

    uid: int = 0
    user: str = ""
    account: str | None = None
    qos: str | None = None
    name: str | None = None
    comment: str | None = None
    extra: str | None = None
    admin_comment: str | None = None
    partition: str | None = None
    partitions: tuple[PartitionRequest, ...] = ()
    usable_partitions: tuple[str, ...] = ()
    time_limit: float | None = None
    time_min: float | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    num_tasks: int | None = None
    ntasks_per_node: int | None = None
    sockets_per_node: int | None = None
    min_cpus: int | None = None
    cpus_per_task: int | None = None
    min_mem_per_node: int | None = None
    min_mem_per_cpu: int | None = None
    waits: int | None = None
    within: int | None = None
    tres_per_job: str | None = None
    tres_per_node: str | None = None
    tres_per_socket: str | None = None
    tres_per_task: str | None = None
    features: str | None = None
    prefer: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    reservation: str | None = None
    script: str | None = None
    work_dir: str | None = None
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """What the hook is to do; every field but ``log`` may be absent.

    ``time_limit`` and ``time_min`` are whole minutes of at least 1. ``features``, ``prefer``,
    ``gres`` and ``partition`` replace what the job has. ``message`` is for the user (log_user),
    several lines allowed. ``delay`` are the points that the job stands back in the queue,
    ``other_delay`` those of jobs without GPUs, written to what ``order`` names (site_factor or
    nice); with ``since`` (Unix seconds) the time of submission counts in it, a point a second.
    ``log`` is one line for slurmctld's log. ``ttl_s`` is how long the hook
    may give the same answer to an identical request, 0 for never.
    """

    log: str
    message: str | None = None
    time_limit: int | None = None
    time_min: int | None = None
    features: str | None = None
    prefer: str | None = None
    gres: str | None = None
    partition: str | None = None
    admin_comment: str | None = None
    order: str | None = None
    delay: int | None = None
    other_delay: int | None = None
    since: int | None = None
    ttl_s: int = ANSWER_TTL_S

    def encode(self) -> bytes:
        """The line, with room for an id below MAX_ANSWER_BYTES; a message too long is dropped."""
        stated = ((name, getattr(self, name)) for name in _ANSWER)
        pairs = [("v", VERSION), *((k, v) for k, v in stated if v is not None)]
        line = (urlencode(pairs, safe=_PLAIN, errors="replace") + "\n").encode("ascii")
        drops = len(line) > MAX_ANSWER_BYTES - MAX_ID_BYTES and self.message is not None
        return replace(self, message=None).encode() if drops else line


_KINDS: dict[str, Any] = {f.name: f.type for f in fields(HookRequest)}
_NUMBERS = {name for name, kind in _KINDS.items() if kind in ("int", "int | None")}
_TIMES = {name for name, kind in _KINDS.items() if kind == "float | None"}
_TEXTS = {name for name, kind in _KINDS.items() if kind in ("str", "str | None")}


def parse_request(line: bytes) -> HookRequest:
    """The request a line holds; raises ProtocolError.

    Bytes that are not UTF-8 become U+FFFD. ``partitions`` is a comma-separated list of
    ``name:default:max`` with an empty time for an unset one and ``inf`` for UNLIMITED.
    """
    if len(line) > MAX_REQUEST_BYTES:
        raise ProtocolError(f"request of {len(line)} bytes; at most {MAX_REQUEST_BYTES} are read")
    if (count := line.count(b"&") + 1) > MAX_FIELDS:
        raise ProtocolError(f"request of {count} fields; at most {MAX_FIELDS} are read")
    line = line.rstrip(b"\n")
    own = {key.decode(): _unquoted(value) for key, value in _OWN.findall(line)}
    return HookRequest(**{**_shared(_OWN.sub(b"", line)), **own})


@lru_cache(KEPT)
def _unquoted(value: bytes) -> str:
    return unquote_plus(value.decode("utf-8", "replace"))


@lru_cache(KEPT)
def _shared(line: bytes) -> dict[str, Any]:
    """The fields that other jobs have too; read-only."""
    stated: dict[str, Any] = {}
    environment: dict[str, str] = {}
    argv: list[str] = []
    version = None
    for pair in line.decode("utf-8", "replace").split("&"):
        key, _, value = pair.partition("=")
        value = unquote_plus(value)
        if key == "v":
            version = value
        elif key == "argv":
            argv.append(value)
        elif key.startswith(ENVIRONMENT_PREFIX):
            environment[key.removeprefix(ENVIRONMENT_PREFIX)] = value
        elif key in _NUMBERS:
            stated[key] = int(_number(key, value))
        elif key in _TIMES:
            stated[key] = _number(key, value)
        elif key == "partitions":
            stated[key] = tuple(_partition(part) for part in value.split(",") if part)
        elif key == "usable_partitions":
            stated[key] = tuple(part for part in value.split(",") if part)
        elif key in _TEXTS:
            stated[key] = value
    if version != str(VERSION):
        raise ProtocolError(f"invalid v={version!r}; expected {VERSION}, which the daemon speaks")
    return {**stated, "argv": tuple(argv), "environment": environment}


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ProtocolError(f"invalid {key}={value!r}; expected a number") from None
    if number < 0 or number != number or (key in _NUMBERS and number >= 2**63):
        raise ProtocolError(f"invalid {key}={value!r}; expected a number from 0")
    return number


def _partition(text: str) -> PartitionRequest:
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        raise ProtocolError(f"invalid partitions={text!r}; expected name:default:max")
    name, default, most = parts
    return PartitionRequest(name, _minutes(default), _minutes(most))


def _minutes(text: str) -> int | None:
    number = _number("partitions", text) if text else float("inf")
    return None if number == float("inf") else int(number)


TIMEOUT_S = 5.0
_ANSWER: dict[str, Any] = {f.name: f.type for f in fields(HookAnswer)}


def encode_request(request: HookRequest) -> bytes:
    """The line that ``parse_request`` reads as this request."""
    pairs: list[tuple[str, object]] = [("v", VERSION)]
    plain = ((f, getattr(request, f)) for f in _KINDS if f in _NUMBERS | _TIMES | _TEXTS)
    pairs += [(name, value) for name, value in plain if value is not None]
    pairs += [("argv", word) for word in request.argv]
    pairs += [(ENVIRONMENT_PREFIX + key, value) for key, value in request.environment.items()]
    if request.partitions:
        texts = (
            f"{part.name}:{'' if part.default_min is None else part.default_min}:"
            f"{'inf' if part.max_min is None else part.max_min}"
            for part in request.partitions
        )
        pairs.append(("partitions", ",".join(texts)))
    if request.usable_partitions:
        pairs.append(("usable_partitions", ",".join(request.usable_partitions)))
    return (urlencode(pairs, encoding="utf-8", errors="replace") + "\n").encode("ascii")


def parse_answer(line: bytes) -> HookAnswer:
    """The answer a line holds; raises ProtocolError."""
    pairs = dict(parse_qsl(line.decode("utf-8", "replace").rstrip("\n"), keep_blank_values=True))
    if pairs.pop("v", None) != str(VERSION) or "log" not in pairs:
        raise ProtocolError(f"{line[:80]!r} is no answer of a daemon of version {VERSION}")
    try:
        known = ((k, v) for k, v in pairs.items() if k in _ANSWER)
        stated: dict[str, Any] = {k: int(v) if "int" in _ANSWER[k] else v for k, v in known}
        return HookAnswer(**stated)
    except ValueError as error:
        raise ProtocolError(f"an answer holds no number: {error}") from None


def ask(path: Path, request: HookRequest, timeout_s: float = TIMEOUT_S) -> HookAnswer:
    """The daemon's answer; raises SlurmError where nobody answers, and ProtocolError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(timeout_s)
        try:
            asking.connect(str(path))
            asking.sendall(encode_request(request))
            line = b""
            while not line.endswith(b"\n") and len(line) <= MAX_ANSWER_BYTES:
                if not (part := asking.recv(MAX_ANSWER_BYTES)):
                    break
                line += part
        except OSError as error:
            raise SlurmError(f"{path}: {error.strerror or error}") from None
    if not line:
        raise SlurmError(f"{path}: the daemon closed the connection: may this user ask?")
    return parse_answer(line)
