"""Which precisions a GPU runs on its tensor cores."""

from __future__ import annotations

from profiles.gpus import Gpu

from .precision import Dtype, Precision

# Number format of matrix products -> (the peak that proves it native, the capability's name).
_NATIVE = {
    Dtype.FP16: ("fp16_tensor", "tensor_core"),
    Dtype.BF16: ("bf16_tensor", "bf16"),
    Dtype.TF32: ("tf32", "tf32"),
    Dtype.FP8: ("fp8_tensor", "fp8"),
    Dtype.FP4: ("fp4_tensor", "fp4"),
}
# What people call nodes with a capability.
CAPABILITY_NAMES = {
    "tensor_core": "tensor-core",
    "bf16": "BF16",
    "tf32": "TF32",
    "fp8": "FP8",
    "fp4": "FP4",
}


def capability(precision: Precision) -> str | None:
    """What a GPU needs to run a precision natively: a key of CAPABILITY_NAMES; None for fp32."""
    native = _NATIVE.get(precision.matmul_dtype)
    return None if native is None else native[1]


def runs_natively(gpu: Gpu, precision: Precision) -> bool:
    """True where the matrix products of a precision run on tensor cores of this GPU."""
    native = _NATIVE.get(precision.matmul_dtype)
    return native is not None and native[0] in gpu.peak_flops


def capabilities(gpu: Gpu) -> tuple[str, ...]:
    """Every capability of a GPU."""
    return tuple(name for peak, name in _NATIVE.values() if peak in gpu.peak_flops)


def has_tensor_cores(gpu: Gpu) -> bool:
    """True from Volta on."""
    return "tensor_core" in capabilities(gpu)
