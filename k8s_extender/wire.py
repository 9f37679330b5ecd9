"""JSON of the scheduler's calls: requests read with care, answers exactly as it needs them.

The scheduler drops every node in silence where an answer lacks a key it looks for, and every
score where one of them is not a whole number, so answers are only built here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, ValidationError

from .errors import WireError
from .records import FilterResult

Json = Mapping[str, Any]

# A body of millions of tiny values would take thirty times its size in memory. Bodies of the
# scheduler hold a value per 25 to 30 bytes.
UNCOUNTED_BYTES = 2**17
SPARE_VALUES = 20_000
BYTES_A_VALUE = 12
MAX_SHOWN = 60


class _Body(BaseModel):
    """A part of a body, of which only what is named here is looked at."""

    model_config = ConfigDict(strict=True)


class _Pod(_Body):
    metadata: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _Metadata(_Body):
    name: str


class _Node(_Body):
    metadata: _Metadata


class _NodeList(_Body):
    items: list[_Node] | None = None


class _NodesArgs(_Body):
    pod: _Pod = Field(alias="Pod")
    nodes: _NodeList | None = Field(default=None, alias="Nodes")
    names: list[str] | None = Field(default=None, alias="NodeNames")


class _Victim(_Body):
    """Sent as ``{"UID": ...}`` or as a whole pod."""

    uid: str = Field(validation_alias=AliasChoices("UID", AliasPath("metadata", "uid")))


class Victims(_Body):
    """The pods that would have to go from a node, by uid."""

    pods: list[_Victim] | None = Field(default=None, alias="Pods")
    violations: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        default=None, alias="NumPDBViolations"
    )


class _PreemptArgs(_Body):
    pod: _Pod = Field(alias="Pod")
    uids: dict[str, Victims | None] | None = Field(default=None, alias="NodeNameToMetaVictims")
    whole: dict[str, Victims | None] | None = Field(default=None, alias="NodeNameToVictims")


Args = TypeVar("Args", bound=_Body)


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """A filter or prioritize call; ``nodes`` are the whole nodes where the scheduler sent them."""

    pod: Json
    names: Sequence[str]
    nodes: Sequence[Json] | None = None


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """A preempt call: what preemption would take on each node."""

    pod: Json
    victims: Mapping[str, Victims]


def nodes_request(body: bytes) -> NodesRequest:
    """The filter or prioritize call of a body; raises WireError naming the key."""
    raw, args = _read(body, _NodesArgs)
    if args.nodes is not None:
        names = [node.metadata.name for node in args.nodes.items or ()]
        return NodesRequest(raw["Pod"], names, raw["Nodes"].get("items") or [])
    if args.names is None:
        raise WireError("NodeNames and Nodes are both null: one of them is needed")
    return NodesRequest(raw["Pod"], args.names)


def preempt_request(body: bytes) -> PreemptRequest:
    """The preempt call of a body; raises WireError naming the key."""
    raw, args = _read(body, _PreemptArgs)
    victims = args.uids or args.whole or {}
    return PreemptRequest(raw["Pod"], {n: found or Victims() for n, found in victims.items()})


def filter_answer(request: NodesRequest, result: FilterResult) -> bytes:
    """The answer to a filter call: names always, whole nodes where the request held them.

    Raises WireError where a node of the request cannot be sent back.
    """
    nodes = None
    if request.nodes is not None:
        passed = set(result.passed)
        nodes = {"items": [n for n in request.nodes if n["metadata"]["name"] in passed]}
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
                    "Pods": [{"UID": pod.uid} for pod in victims.pods or ()],
                    "NumPDBViolations": victims.violations or 0,
                }
                for name, victims in request.victims.items()
                if name in kept
            }
        }
    )


def _read(body: bytes, kind: type[Args]) -> tuple[Any, Args]:
    """A body as plain JSON, and what is looked at of it."""
    if len(body) > UNCOUNTED_BYTES:
        values = sum(map(body.count, (b",", b"[", b"{")))
        if values > SPARE_VALUES + len(body) // BYTES_A_VALUE:
            raise WireError(f"body holds {values} values in {len(body)} bytes: too many")
    try:
        raw = orjson.loads(body)
        return raw, kind.model_validate(raw)
    except orjson.JSONDecodeError as error:
        raise WireError(f"body is not JSON: {error}") from None
    except ValidationError as error:
        raise WireError(_first(error)) from None


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, by its key."""
    found = error.errors(include_url=False, include_context=False)[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in found["loc"])
    key = "".join(steps).removeprefix(".") or "body"
    value = found["input"]
    shown = "null" if value is None else type(value).__name__
    if isinstance(value, str | int | float):
        shown = repr(value)[:MAX_SHOWN]
    return f"invalid {key[:200]}={shown}; {found['msg'].replace('Input should be', 'expected')}"
