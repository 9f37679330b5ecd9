"""How GPUs are wired, in a node and between nodes: ``profiles/fabrics.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache

from profiles.gpus import Gpu
from profiles.storage import shipped_yaml

from ..errors import JobError

BITS = 8


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network of one node: ``rails`` adapters of ``rail_bytes_per_s`` in each direction."""

    name: str
    family: str
    rail_bytes_per_s: float
    rails: int


@dataclass(frozen=True, slots=True)
class Node:
    """How the GPUs of a node are wired, and the network such a node has unless told otherwise.

    ``domain`` GPUs are wired so: those of one node, or of a rack of nodes.
    """

    topology: str
    gpus_per_node: int
    fabric: Fabric
    domain: int


FILE = "fabrics.yaml"


@cache
def node_of(gpu_name: str) -> Node:
    """The usual node of a GPU of ``gpus.yaml``."""
    for entry in shipped_yaml(FILE)["nodes"]:
        if any(fnmatch(gpu_name, pattern) for pattern in entry["gpus"]):
            fabric = _fabric(entry["fabric"], entry["rails"])
            gpus = entry["gpus_per_node"]
            return Node(entry["topology"], gpus, fabric, entry.get("domain", gpus))
    raise JobError("gpu", gpu_name, "a name that a pattern of fabrics.yaml matches")


def fabric_of(gpu: Gpu, text: str | None) -> Fabric:
    """The network a job names, such as ``ib-edr``, ``4x ib-hdr`` or ``25GbE``.

    None means the usual one of the GPU's node. Without a count it has as many rails as the usual
    node when it is the usual fabric, else as a cloud gives this GPU, or one. Raises
    JobError naming the known fabrics.
    """
    usual = node_of(gpu.name).fabric
    if text is None:
        return usual
    words = re.sub(r"[\s_]+", "-", text.strip().lower())
    match = re.fullmatch(r"(?:(\d+)-?x-?)?(.+)", words)
    count, name = match.groups() if match else (None, words)
    name = _names().get(name, "")
    if not name:
        known = ", ".join(shipped_yaml(FILE)["fabrics"])
        raise JobError(
            "fabric", text, f"expected one of {known}, with a count of adapters: 4x ib-hdr"
        )
    if count is None:
        rails = shipped_yaml(FILE)["fabrics"][name].get("rails", {}).get(gpu.name.split("-")[0], 1)
        return usual if name == usual.name else _fabric(name, rails)
    return _fabric(name, max(1, int(count)))


def measured_fabric(text: str) -> Fabric | None:
    """What the fabric text of a collective table means, None where it does not tell."""
    for entry in shipped_yaml(FILE)["measured"]:
        if entry["text"] == text:
            return _fabric(entry["fabric"], entry["rails"])
    return None


def system_fabric(text: str) -> str | None:
    """The fabric that the description of a cluster names, None where it names none."""
    for entry in shipped_yaml(FILE)["systems"]:
        if match := re.search(entry["pattern"], text):
            return str(entry["fabric"].format(match[1]))
    return None


def times_copies(source: str, operation: str) -> bool:
    """Whether rows of this source hold copies next to the collective."""
    return any(
        source.startswith(entry["source"]) and operation in entry["operations"]
        for entry in shipped_yaml(FILE)["copied"]
    )


@cache
def _names() -> Mapping[str, str]:
    names: dict[str, str] = {}
    for name, entry in shipped_yaml(FILE)["fabrics"].items():
        names.update(dict.fromkeys((name, *entry["aliases"]), name))
    return names


def _fabric(name: str, rails: int) -> Fabric:
    entry = shipped_yaml(FILE)["fabrics"][name]
    return Fabric(name, entry["family"], entry["gbit_per_s"] * 1e9 / BITS, rails)
