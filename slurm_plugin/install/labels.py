"""The lines of slurm.conf and gres.conf that tell Slurm which GPUs a node has."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter, ValidationError

from predictor.job.precision import capabilities
from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu, spelling

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


# Slurm would read a type that begins with a digit as a count.
_WORD = re.compile(r"[a-z][a-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What to put on one node.

    ``gres`` and ``features`` are values of ``Gres=`` and ``Feature=`` of its NodeName line;
    ``gres_lines`` belong in gres.conf, ``remarks`` are for the admin.
    """

    node: str
    gres: tuple[str, ...]
    features: tuple[str, ...]
    gres_lines: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def label(node: NvmlNode, names: Mapping[str, str]) -> Labels:
    """The labels of a node; ``names`` are ``placement.features`` of the policy.

    Raises InstallError for a node without GPU and for a GPU that no data sheet knows.
    """
    if not node.gpus:
        raise InstallError(f"{node.name} has no GPU that NVML shows")
    known = [(gpu, _data_sheet(gpu.product)) for gpu in node.gpus]
    whole = [(seen, gpu) for seen, gpu in known if not seen.mig_mode]
    parts = [(profile, gpu) for seen, gpu in known for profile in seen.mig]
    counts = Counter(type_name(gpu) for _, gpu in whole)
    counts.update(f"{type_name(gpu)}_{profile}" for profile, gpu in parts)
    features = [name for _, gpu in known for name in _features(gpu, names)]
    return Labels(
        node=node.name,
        gres=tuple(f"gpu:{name}:{count}" for name, count in counts.items()),
        features=tuple(dict.fromkeys(features)),
        gres_lines=tuple(_gres_lines(node.name, whole, divided=bool(parts))),
        remarks=tuple(_remarks(node)),
    )


def type_name(gpu: Gpu) -> str:
    """The shortest name that means this GPU and can be a GRES type."""
    words = {spelling(name) for name in (gpu.name, *gpu.aliases)}
    return min((w for w in words if _WORD.fullmatch(w)), key=lambda word: (len(word), word))


def lines(labels: Labels) -> Iterator[str]:
    """The labels as an admin copies them."""
    yield from (f"# {remark}" for remark in labels.remarks)
    yield "# slurm.conf: on the NodeName line of this node (and GresTypes=gpu once)"
    gres = f" Gres={','.join(labels.gres)}" if labels.gres else ""
    yield f"NodeName={labels.node}{gres} Feature={','.join(labels.features)}"
    yield "# gres.conf"
    yield from labels.gres_lines


def _features(gpu: Gpu, names: Mapping[str, str]) -> Iterator[str]:
    major, minor = gpu.compute_capability
    yield from (type_name(gpu), gpu.architecture, f"cc{major}{minor}")
    yield from (names[key] for key in capabilities(gpu) if key in names)


def _gres_lines(node: str, gpus: list[tuple[NodeGpu, Gpu]], *, divided: bool) -> Iterator[str]:
    """The device files of whole GPUs; those of parts are found by Slurm itself."""
    if divided:
        yield f"NodeName={node} AutoDetect=nvml"
        return
    minors: dict[str, list[int]] = {}
    for seen, gpu in gpus:
        minors.setdefault(type_name(gpu), []).append(seen.minor)
    for name, numbers in minors.items():
        yield f"NodeName={node} Name=gpu Type={name} File=/dev/nvidia{_ranges(numbers)}"


def _remarks(node: NvmlNode) -> Iterator[str]:
    if any(gpu.mig_mode and not gpu.mig for gpu in node.gpus):
        yield "a GPU is in MIG mode without instances: Slurm can give nothing of it"
    if any(gpu.mig for gpu in node.gpus):
        yield "MIG instances are parts of a GPU: no time is predicted for jobs on them"


def _ranges(numbers: list[int]) -> str:
    """``0`` or ``[0-3,5]``, as gres.conf writes device files."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return words[0] if len(numbers) == 1 else f"[{','.join(words)}]"


def _data_sheet(product: str) -> Gpu:
    try:
        return find_gpu(product)
    except UnknownGpuError as error:
        raise InstallError(
            f"{product!r} is in no data sheet of profiles/gpus.yaml ({error}): label it by hand "
            "and map the name in the policy, hardware.gpu_types"
        ) from None
