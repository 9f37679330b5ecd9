"""Which GPU a node of Slurm has, and what that GPU runs on tensor cores."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from predictor.precision import Dtype, Precision
from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu

from .cluster import GpuGres, Node
from .config import Hardware

# Number format of matrix products -> (the peak that proves it native, its name in the policy).
_NATIVE = {
    Dtype.FP16: ("fp16_tensor", "tensor_core"),
    Dtype.BF16: ("bf16_tensor", "bf16"),
    Dtype.TF32: ("tf32", "tf32"),
    Dtype.FP8: ("fp8_tensor", "fp8"),
}
TENSOR_CORE_PEAK = "fp16_tensor"


def gpu_of(node: Node, gres: GpuGres, hardware: Hardware) -> Gpu | None:
    """The GPU behind one GRES of a node, None where no name tells.

    Asked in this order: ``hardware.node_gpus`` by pattern of the node's name, the GRES type, the
    node's features; GRES types and features first through ``hardware.gpu_types``.
    """
    for pattern, name in hardware.node_gpus.items():
        if fnmatchcase(node.name, pattern):
            return gpu_named(name, hardware)
    if gres.type is not None:
        return gpu_named(gres.type, hardware)
    named = (gpu_named(feature, hardware) for feature in sorted(node.features))
    return next((gpu for gpu in named if gpu is not None), None)


def gpu_named(name: str, hardware: Hardware) -> Gpu | None:
    """The GPU that a GRES type or feature means, None where it means none."""
    try:
        return find_gpu(hardware.gpu_types.get(name, name))
    except UnknownGpuError:
        return None


def capability(precision: Precision) -> str | None:
    """What a node needs to run a precision natively, as the policy names it; None for fp32."""
    native = _NATIVE.get(precision.matmul_dtype)
    return None if native is None else native[1]


def runs_natively(gpu: Gpu, precision: Precision) -> bool:
    """True where the matrix products of a precision run on tensor cores of this GPU."""
    native = _NATIVE.get(precision.matmul_dtype)
    return native is not None and native[0] in gpu.peak_flops


def capabilities(gpu: Gpu) -> tuple[str, ...]:
    """Every capability of a GPU, as the policy names them."""
    return tuple(name for peak, name in _NATIVE.values() if peak in gpu.peak_flops)


def has_tensor_cores(gpu: Gpu) -> bool:
    """True from Volta on."""
    return TENSOR_CORE_PEAK in gpu.peak_flops


def distinct(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each GPU once, in order."""
    return tuple({gpu.name: gpu for gpu in gpus}.values())
