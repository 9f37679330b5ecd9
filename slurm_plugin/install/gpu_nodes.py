"""What NVML says of a node's GPUs, as values that also come from and go to JSON."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import InstallError

CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.M)
_PROFILE = re.compile(r"\bMIG\s+(\S+)")


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A part of a GPU: its profile (``1g.5gb``) and the device files that give access to it."""

    profile: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One GPU: product name of NVML, number of its ``/dev/nvidia`` file, parts in MIG mode."""

    product: str
    minor: int
    mig: tuple[MigInstance, ...] = ()
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


def read_node(nvml: Any, name: str, capabilities: Path = CAPABILITIES) -> NvmlNode:
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
        return NvmlNode(name, tuple(_gpu(nvml, handle, capabilities) for handle in handles))
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
        return tuple(_node(entry) for entry in (raw if isinstance(raw, list) else [raw]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InstallError(
            f"{origin} is not what `label-nodes --format json` prints: "
            f"{type(error).__name__}: {error}"
        ) from None


def _gpu(nvml: Any, handle: Any, capabilities: Path) -> NodeGpu:
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    try:
        divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # not supported before A100
        divided = False
    parts = tuple(_instances(nvml, handle, minor, capabilities)) if divided else ()
    return NodeGpu(_text(nvml.nvmlDeviceGetName(handle)), minor, parts, divided)


def _instances(nvml: Any, handle: Any, minor: int, capabilities: Path) -> Iterator[MigInstance]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # fewer are made than possible
            continue
        name = _text(nvml.nvmlDeviceGetName(part))
        profile = _PROFILE.search(name)
        instance = nvml.nvmlDeviceGetGpuInstanceId(part)
        compute = nvml.nvmlDeviceGetComputeInstanceId(part)
        base = capabilities / f"gpu{minor}" / "mig" / f"gi{instance}"
        minors = [_device_minor(base / place) for place in ("access", f"ci{compute}/access")]
        files = [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{m}" for m in minors if m)]
        yield MigInstance(profile[1] if profile else name, tuple(files) if all(minors) else ())


def _device_minor(path: Path) -> str | None:
    try:
        found = _MINOR.search(path.read_text())
    except OSError:
        return None
    return found[1] if found else None


def _node(raw: Mapping[str, Any]) -> NvmlNode:
    return NvmlNode(str(raw["name"]), tuple(_node_gpu(entry) for entry in raw["gpus"]))


def _node_gpu(raw: Mapping[str, Any]) -> NodeGpu:
    parts = tuple(
        MigInstance(str(part["profile"]), tuple(map(str, part.get("files", ()))))
        for part in raw.get("mig", ())
    )
    return NodeGpu(
        str(raw["product"]), int(raw["minor"]), parts, bool(raw.get("mig_mode", bool(parts)))
    )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
