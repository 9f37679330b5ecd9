"""The lines of slurm.conf and gres.conf that tell Slurm which GPUs a node has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from predictor.job.precision import capabilities
from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu, spelling

from ..errors import InstallError
from .gpu_nodes import NodeGpu, NvmlNode

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
