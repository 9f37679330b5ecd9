"""JSON of the scheduler's calls: requests read with care, answers exactly as it needs them.

The scheduler drops every node in silence where an answer lacks a key it looks for, and every
score where one of them is not a whole number, so answers are only built here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from .errors import WireError
from .records import FilterResult

Json = Mapping[str, Any]

# A body of millions of tiny values would take thirty times its size in memory. Bodies of the
# scheduler hold a value per 25 to 30 bytes.
UNCOUNTED_BYTES = 2**17
SPARE_VALUES = 20_000
BYTES_A_VALUE = 12
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """A filter or prioritize call; ``nodes`` are the whole nodes where the scheduler sent them."""

    pod: Json
    names: Sequence[str]
    nodes: Sequence[Json] | None = None


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that would have to go from a node, by uid."""

    uids: tuple[str, ...]
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """A preempt call: what preemption would take on each node."""

    pod: Json
    victims: Mapping[str, Victims]


def nodes_request(body: bytes) -> NodesRequest:
    """The filter or prioritize call of a body; raises WireError naming the key."""
    args = _object("body", _parsed(body))
    pod = _pod(args)
    if args.get("Nodes") is not None:
        nodes = _items(args["Nodes"])
        return NodesRequest(pod, [_node_name(i, node) for i, node in enumerate(nodes)], nodes)
    if args.get("NodeNames") is None:
        raise WireError("NodeNames and Nodes are both null: one of them is needed")
    return NodesRequest(pod, _texts("NodeNames", args["NodeNames"]))


def preempt_request(body: bytes) -> PreemptRequest:
    """The preempt call of a body; raises WireError naming the key."""
    args = _object("body", _parsed(body))
    pod = _pod(args)
    for key in ("NodeNameToMetaVictims", "NodeNameToVictims"):
        if args.get(key):
            named = _object(key, args[key])
            return PreemptRequest(pod, {n: _victims(f"{key}.{n}", v) for n, v in named.items()})
    return PreemptRequest(pod, {})


def filter_answer(request: NodesRequest, result: FilterResult) -> bytes:
    """The answer to a filter call: names always, whole nodes where the request held them.

    Raises WireError where a node of the request cannot be sent back.
    """
    nodes = None
    if request.nodes is not None:
        passed = set(result.passed)
        nodes = {"items": [node for node in request.nodes if _name(node) in passed]}
    answer = {
        "Nodes": nodes,
        "NodeNames": result.passed,
        "FailedNodes": {},  # preemption would evict pods for reasons that it does not change
        "FailedAndUnresolvableNodes": result.refused,
        "Error": "",
    }
    try:
        return orjson.dumps(answer)
    except orjson.JSONEncodeError as error:
        raise WireError(f"Nodes cannot be sent back: {error}") from None


def prioritize_answer(scores: Iterable[str]) -> bytes:
    """The answer to a prioritize call, of the JSON of each host's score."""
    return f"[{','.join(scores)}]".encode()


def preempt_answer(request: PreemptRequest, names: Collection[str]) -> bytes:
    """The answer to a preempt call: the nodes that may be used, with their victims."""
    kept = set(names)
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": uid} for uid in victims.uids],
                    "NumPDBViolations": victims.pdb_violations,
                }
                for name, victims in request.victims.items()
                if name in kept
            }
        }
    )


def _parsed(body: bytes) -> object:
    if len(body) > UNCOUNTED_BYTES:
        values = sum(map(body.count, (b",", b"[", b"{")))
        if values > SPARE_VALUES + len(body) // BYTES_A_VALUE:
            raise WireError(f"body holds {values} values in {len(body)} bytes: too many")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError(f"body is not JSON: {error}") from None


def _pod(args: Json) -> Json:
    pod = _object("Pod", args.get("Pod"))
    for part in ("metadata", "spec", "status"):
        value = pod.get(part)
        if value is not None and not isinstance(value, dict):
            raise _wrong(f"Pod.{part}", value, "an object")
    return pod


def _items(nodes: object) -> Sequence[Json]:
    items = _list("Nodes.items", _object("Nodes", nodes).get("items"))
    return [_object(f"Nodes.items[{i}]", node) for i, node in enumerate(items)]


def _node_name(index: int, node: Json) -> str:
    name = _name(node)
    if not isinstance(name, str):
        raise _wrong(f"Nodes.items[{index}].metadata.name", name, "a text")
    return name


def _name(node: Json) -> object:
    metadata = node.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _victims(key: str, value: object) -> Victims:
    if value is None:
        return Victims((), 0)
    victims = _object(key, value)
    violations = victims.get("NumPDBViolations") or 0
    if type(violations) is not int or abs(violations) >= 2**63:
        raise _wrong(f"{key}.NumPDBViolations", violations, "a whole number")
    pods = enumerate(_list(f"{key}.Pods", victims.get("Pods")))
    return Victims(tuple(_uid(f"{key}.Pods[{i}]", pod) for i, pod in pods), violations)


def _uid(key: str, value: object) -> str:
    """The uid of a victim, sent as ``{"UID": ...}`` or as a whole pod."""
    pod = _object(key, value)
    uid = pod["UID"] if "UID" in pod else _object(f"{key}.metadata", pod.get("metadata")).get("uid")
    if not isinstance(uid, str):
        raise _wrong(f"{key}.UID", uid, "a text")
    return uid


def _object(key: str, value: object) -> Json:
    if not isinstance(value, dict):
        raise _wrong(key, value, "an object")
    return value


def _list(key: str, value: object) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(key, value, "a list or null")
    return value


def _texts(key: str, value: object) -> Sequence[str]:
    texts = _list(key, value)
    try:
        "".join(texts)  # type: ignore[arg-type]
    except TypeError:
        at, wrong = next((i, text) for i, text in enumerate(texts) if not isinstance(text, str))
        raise _wrong(f"{key}[{at}]", wrong, "a text") from None
    return texts  # type: ignore[return-value]


def _wrong(key: str, value: object, expected: str) -> WireError:
    shown = "null" if value is None else type(value).__name__
    if isinstance(value, str | int | float):
        shown = repr(value)[:MAX_SHOWN]
    return WireError(f"invalid {key[:200]}={shown}; expected {expected}")
