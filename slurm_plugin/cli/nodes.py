"""`precision-time slurm label-nodes`: which GPUs a node has, as Slurm is told."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from ClusterShell.RangeSet import RangeSet

from predictor.job.precision import capabilities
from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu, spelling, variants

from ..config import policy_at
from ..errors import InstallError
from . import config_option


@click.command("label-nodes")
@config_option
def label_nodes(config: Path | None) -> None:
    """Print the slurm.conf and gres.conf lines of this node's GPUs, read from NVML."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        words = "nvidia-ml-py is not installed: pip install 'precision-time[slurm]'"
        raise InstallError(words) from None
    node = read_node(nvml, socket.gethostname().partition(".")[0])
    names = {str(key): name for key, name in policy_at(config).placement.features.items()}
    click.echo("\n".join(lines(label(node, names))))


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


def read_node(nvml: Any, name: str) -> NvmlNode:
    """The GPUs NVML shows; ``nvml`` is the module pynvml. Raises InstallError with its words."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InstallError(
            f"NVML cannot be used on {name} ({error}): run this on a node with the NVIDIA driver"
        ) from None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return NvmlNode(name, tuple(_gpu(nvml, handle) for handle in handles))
    except nvml.NVMLError as error:
        raise InstallError(f"NVML on {name}: {error}") from None
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> NodeGpu:
    def named(device: Any) -> str:
        name = nvml.nvmlDeviceGetName(device)
        return name.decode() if isinstance(name, bytes) else str(name)

    parts, divided = [], False
    with suppress(nvml.NVMLError):  # not supported before A100
        divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) if divided else ():
        try:
            name = named(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except nvml.NVMLError:  # fewer are made than possible
            continue
        profile = _PROFILE.search(name)
        parts.append(profile[1] if profile else name)
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    return NodeGpu(named(handle), minor, tuple(parts), divided)


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
    whole, parts, features, minors = [], list[str](), dict[str, None](), dict[str, RangeSet]()
    remarks = dict[str, None]()
    for seen in node.gpus:
        try:
            gpu = find_gpu(seen.product)
        except UnknownGpuError as error:
            raise InstallError(
                f"{seen.product!r} is in no data sheet of profiles/gpus.yaml ({error}): label it "
                "by hand and map the name in the policy, hardware.gpu_types"
            ) from None
        kind, (major, minor) = type_name(gpu), gpu.compute_capability
        able = (names[key] for key in capabilities(gpu) if key in names)
        features |= dict.fromkeys((kind, gpu.architecture, f"cc{major}{minor}", *able))
        if variants(kind):
            said = f"gpu_types: {{{kind}: {gpu.name}}}"
            remarks[f"in the policy under hardware, for there are other {kind}: {said}"] = None
        parts += [f"{kind}_{profile}" for profile in seen.mig]
        if not seen.mig_mode:
            whole.append(kind)
            minors.setdefault(kind, RangeSet()).add(seen.minor)
    if any(gpu.mig_mode and not gpu.mig for gpu in node.gpus):
        remarks["a GPU is in MIG mode without instances: Slurm can give nothing of it"] = None
    if parts:  # their device files are found by Slurm itself
        remarks["MIG instances are parts of a GPU: no time is predicted for jobs on them"] = None
        gres_lines = [f"NodeName={node.name} AutoDetect=nvml"]
    else:
        files = {kind: str(at) if len(at) == 1 else f"[{at}]" for kind, at in minors.items()}
        gres_lines = [
            f"NodeName={node.name} Name=gpu Type={kind} File=/dev/nvidia{numbers}"
            for kind, numbers in files.items()
        ]
    return Labels(
        node=node.name,
        gres=tuple(f"gpu:{name}:{count}" for name, count in Counter((*whole, *parts)).items()),
        features=tuple(features),
        gres_lines=tuple(gres_lines),
        remarks=tuple(remarks),
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
