"""Precision of a job, the number formats of operators, and the GPUs that run them natively."""

from __future__ import annotations

from enum import StrEnum

from profiles.gpus import Gpu
from profiles.storage import shipped_yaml

from ..errors import JobError
from .words import accepted, key_of, nearest


class Dtype(StrEnum):
    """Number format one operator computes in; tf32 is fp32 storage on tensor cores."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"

    @property
    def bytes(self) -> int:
        """Bytes of one stored element; FP4 keeps two copies of half a byte, by rows and columns."""
        return _BYTES[self]


_BYTES = {Dtype.FP32: 4, Dtype.TF32: 4, Dtype.FP16: 2, Dtype.BF16: 2, Dtype.FP8: 1, Dtype.FP4: 1}


class Precision(StrEnum):
    """Precision policy of a whole job."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    MIXED_FP16_FP32 = "mixed_fp16_fp32"
    MIXED_BF16_FP32 = "mixed_bf16_fp32"
    MIXED_FP8_BF16 = "mixed_fp8_bf16"
    MIXED_FP8_FP16 = "mixed_fp8_fp16"
    MIXED_FP4_BF16 = "mixed_fp4_bf16"

    @property
    def mixed(self) -> bool:
        """True where an autocast pass chooses the format per operator."""
        return self.value.startswith("mixed")

    @property
    def matmul_dtype(self) -> Dtype:
        """Format of matrix multiplications and convolutions."""
        return _MATMUL[self]

    @property
    def activation_dtype(self) -> Dtype:
        """Storage format of activations between operators."""
        return _ACTIVATION[self]


# A policy is named for the format of its products, then for that of what it keeps.
_MATMUL = {p: Dtype(p.removeprefix("mixed_").partition("_")[0]) for p in Precision}
_ACTIVATION = {
    p: Dtype.FP32 if p is Precision.TF32 else Dtype(p.removesuffix("_fp32").rpartition("_")[2])
    for p in Precision
}

# What people write, in lower case with '_' for '-', and the policy it means.
ALIASES: dict[str, Precision] = {
    alias: Precision(name)
    for name, aliases in shipped_yaml("precisions.yaml").items()
    for alias in aliases
}


def parse_precision(text: str) -> Precision:
    """The policy a user's word means; raises JobError with the nearest words.

    `fp16` and `bf16` alone mean everything in that format (as torch's ``model.half()``); the
    flags ``--fp16`` and ``--bf16`` of training scripts mean autocast.
    """
    key = key_of(text)
    if key in ALIASES:
        return ALIASES[key]
    try:
        return Precision(key)
    except ValueError:
        near = nearest(key, (name for name in ALIASES if name[0] != "_"))
        words = [*near, *Precision, "amp", "fp8"]
        raise JobError("precision", text, accepted(key, words)) from None


# Number format of matrix products -> (the peak that proves it native, the capability's name).
_NATIVE = {
    Dtype.FP16: ("fp16_tensor", "tensor_core"),
    Dtype.BF16: ("bf16_tensor", "bf16"),
    Dtype.TF32: ("tf32", "tf32"),
    Dtype.FP8: ("fp8_tensor", "fp8"),
    Dtype.FP4: ("fp4_tensor", "fp4"),
}
# What people call nodes with a capability.
_NAMED_FORMATS = {name: name.upper() for name in ("bf16", "tf32", "fp8", "fp4")}
CAPABILITY_NAMES = {"tensor_core": "tensor-core", **_NAMED_FORMATS}


def capability(precision: Precision) -> str | None:
    """What a GPU needs to run a precision natively: a key of CAPABILITY_NAMES; None for fp32."""
    return _NATIVE.get(precision.matmul_dtype, (None, None))[1]


def tensor_peak(gpu: Gpu, dtype: Dtype) -> float | None:
    """Peak FLOP/s of a format on the tensor cores of a GPU, None where it has none."""
    native = _NATIVE.get(dtype)
    return None if native is None else gpu.peak_flops.get(native[0])


def runs_natively(gpu: Gpu, precision: Precision) -> bool:
    """True where the matrix products of a precision run on tensor cores of this GPU."""
    return tensor_peak(gpu, precision.matmul_dtype) is not None


def capabilities(gpu: Gpu) -> tuple[str, ...]:
    """Every capability of a GPU."""
    return tuple(name for peak, name in _NATIVE.values() if peak in gpu.peak_flops)


def has_tensor_cores(gpu: Gpu) -> bool:
    """True from Volta on."""
    return "tensor_core" in capabilities(gpu)


def trainer_named(text: str) -> str:
    """A trainer of ``trainers.yaml``; raises JobError with the nearest names."""
    if text not in shipped_yaml("trainers.yaml"):
        raise JobError("trainer", text, accepted(text, shipped_yaml("trainers.yaml")))
    return text


def default_precision(trainer: str, gpu: Gpu) -> tuple[Precision, str]:
    """What a trainer computes in where nothing is stated, and why."""
    entry = shipped_yaml("trainers.yaml")[trainer]
    later = entry.get("ampere") if runs_natively(gpu, Precision.TF32) else None
    return Precision(later or entry["precision"]), f"usual for {entry['who']}; {entry['source']}"
