"""Nodes and calls of the benchmark, made of what was captured from a real control plane."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

CAPTURED = Path(__file__).resolve().parents[2] / "tests" / "k8s" / "payloads"
GPU = "nvidia.com/gpu."
PREFIX = "precision-time.io/"
# Product, memory in MiB and compute capability, as GPU feature discovery writes them.
PRODUCTS = (
    ("NVIDIA-H100-80GB-HBM3", "81559", "9", "0"),
    ("NVIDIA-A100-SXM4-40GB", "40960", "8", "0"),
    ("Tesla-V100-SXM2-16GB", "16384", "7", "0"),
    ("Tesla-T4", "15360", "7", "5"),
)
FIRST_NEW_BATCH = 9


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods of one kind by what they say; each of the ``new`` has a shape never asked before."""

    name: str
    said: Mapping[str, str]
    new: bool = False


MIXED = Kind("known", {"model": "resnet50", "precision": "amp", "batch-size": "64", "epochs": "90"})
BF16 = Kind(
    "refused",
    {"model": "bert-large", "precision": "bf16-mixed", "batch-size": "4", "steps": "1000"},
)
NEW = Kind("new", {"precision": "amp", "steps": "1000"}, new=True)
NEW_MODELS = ("resnet50", "resnet101", "vgg16", "bert-base", "gpt2")


def node_names(count: int) -> list[str]:
    """As long as those of the captured traffic: 66 kB for 5,000 of them."""
    return [f"node-{i:05}" for i in range(count)]


def nodes(count: int) -> list[dict[str, Any]]:
    """Captured nodes under other names, their GPUs in turn of four types."""
    body = _captured("filter-nodeCacheCapable-false")["request_body"]
    captured = body["Nodes"]["items"][0]
    return [_node(captured, i, name) for i, name in enumerate(node_names(count))]


def uid_of(number: int) -> str:
    """The uid of a pod by its number."""
    return f"00000000-0000-4000-8000-{number:012x}"


class Pods:
    """Pods that were never seen before, each from the captured one."""

    def __init__(self) -> None:
        self._made = 0
        self._shapes = 0

    def of(self, kind: Kind) -> dict[str, Any]:
        """The next pod of a kind."""
        self._made += 1
        said = dict(kind.said)
        if kind.new:
            said |= _shape(self._shapes)
            self._shapes += 1
        pod: dict[str, Any] = deepcopy(
            _captured("filter-nodeCacheCapable-true")["request_body"]["Pod"]
        )
        pod["metadata"] |= {
            "name": f"train-{self._made}",
            "uid": uid_of(self._made),
            "resourceVersion": str(self._made),
            "annotations": {f"{PREFIX}{key}": value for key, value in said.items()},
        }
        return pod


def request(
    verb: str, pod: Mapping[str, Any], names: Sequence[str], path: str | None = None
) -> bytes:
    """A whole HTTP request, with the header fields that kube-scheduler sent."""
    body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
    fields = _captured(f"{verb}-nodeCacheCapable-true")["request_headers"]
    told = dict(fields) | {"Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST /{path or verb} HTTP/1.1\r\n{head}\r\n".encode() + body


def _shape(number: int) -> dict[str, str]:
    """Batch size 9 of one model after another, then 10, ..."""
    round_, turn = divmod(number, len(NEW_MODELS))
    return {"model": NEW_MODELS[turn], "batch-size": str(FIRST_NEW_BATCH + round_)}


def _node(captured: Mapping[str, Any], number: int, name: str) -> dict[str, Any]:
    node = deepcopy(dict(captured))
    product, memory, major, minor = PRODUCTS[number % len(PRODUCTS)]
    node["metadata"] |= {"name": name, "uid": uid_of(number), "resourceVersion": str(number + 1)}
    node["metadata"]["labels"] |= {
        "kubernetes.io/hostname": name,
        f"{GPU}product": product,
        f"{GPU}memory": memory,
        f"{GPU}compute.major": major,
        f"{GPU}compute.minor": minor,
    }
    return node


@cache
def _captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CAPTURED / f"{name}.json").read_bytes())
    return found
