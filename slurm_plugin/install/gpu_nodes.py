"""What NVML says of a node's GPUs, as values that also come from and go to JSON."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..errors import InstallError

_PROFILE = re.compile(r"\bMIG\s+(\S+)")


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One GPU: product name of NVML, number of its ``/dev/nvidia`` file.

    ``mig`` are the profiles of its parts (``1g.5gb``) in MIG mode.
    """

    product: str
    minor: int
    mig: tuple[str, ...] = ()
    mig_mode: bool = False


@dataclass(frozen=True, slots=True)
class NvmlNode:
    """One node and its GPUs in the order of NVML."""

    name: str
    gpus: tuple[NodeGpu, ...]


def this_node() -> NvmlNode:
    """The GPUs of this machine; raises InstallError without NVML or driver."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        raise InstallError(
            "nvidia-ml-py is not installed: pip install 'precision-time[slurm]', or use --from-json"
        ) from None
    return read_node(nvml, socket.gethostname().partition(".")[0])


def read_node(nvml: Any, name: str) -> NvmlNode:
    """The GPUs NVML shows; ``nvml`` is the module pynvml. Raises InstallError with its words."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InstallError(
            f"NVML cannot be used on {name} ({error}): run this on a node with the NVIDIA driver, "
            "or use --from-json"
        ) from None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return NvmlNode(name, tuple(_gpu(nvml, handle) for handle in handles))
    except nvml.NVMLError as error:
        raise InstallError(f"NVML on {name}: {error}") from None
    finally:
        nvml.nvmlShutdown()


def to_json(nodes: tuple[NvmlNode, ...]) -> str:
    """The nodes as JSON, which ``from_json`` reads."""
    return json.dumps([asdict(node) for node in nodes], indent=2)


def from_json(text: str, origin: str) -> tuple[NvmlNode, ...]:
    """One node or a list of them; raises InstallError naming what is wrong."""
    try:
        raw = json.loads(text)
        nodes = raw if isinstance(raw, list) else [raw]
        return TypeAdapter(tuple[NvmlNode, ...]).validate_python(nodes)
    except (ValueError, ValidationError) as error:
        raise InstallError(
            f"{origin} is not what `label-nodes --format json` prints: {error}"
        ) from None


def _gpu(nvml: Any, handle: Any) -> NodeGpu:
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    try:
        divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # not supported before A100
        divided = False
    parts = tuple(_profiles(nvml, handle)) if divided else ()
    return NodeGpu(_text(nvml.nvmlDeviceGetName(handle)), minor, parts, divided)


def _profiles(nvml: Any, handle: Any) -> Iterator[str]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # fewer are made than possible
            continue
        name = _text(nvml.nvmlDeviceGetName(part))
        profile = _PROFILE.search(name)
        yield profile[1] if profile else name


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
