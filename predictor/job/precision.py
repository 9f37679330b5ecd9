"""Precision of a job, its aliases, and the number formats of operators."""

from __future__ import annotations

from enum import StrEnum

from ..errors import JobError
from .words import accepted


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


_MATMUL = {
    Precision.FP32: Dtype.FP32,
    Precision.TF32: Dtype.TF32,
    Precision.FP16: Dtype.FP16,
    Precision.BF16: Dtype.BF16,
    Precision.MIXED_FP16_FP32: Dtype.FP16,
    Precision.MIXED_BF16_FP32: Dtype.BF16,
    Precision.MIXED_FP8_BF16: Dtype.FP8,
    Precision.MIXED_FP8_FP16: Dtype.FP8,
    Precision.MIXED_FP4_BF16: Dtype.FP4,
}
_ACTIVATION = {
    **_MATMUL,
    Precision.TF32: Dtype.FP32,
    Precision.MIXED_FP8_BF16: Dtype.BF16,
    Precision.MIXED_FP8_FP16: Dtype.FP16,
    Precision.MIXED_FP4_BF16: Dtype.BF16,
}

# What people write -> the policy it means. Keys are compared in lower case with '_' for '-'.
# Sources: torch.autocast, Lightning `precision=`, Hugging Face Trainer flags, NVIDIA apex levels.
ALIASES: dict[str, Precision] = {
    "float32": Precision.FP32,
    "32": Precision.FP32,
    "32_true": Precision.FP32,
    "single": Precision.FP32,
    "full": Precision.FP32,
    "o0": Precision.FP32,
    "no": Precision.FP32,
    "tensorfloat32": Precision.TF32,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "16_true": Precision.FP16,
    "o3": Precision.FP16,
    "bfloat16": Precision.BF16,
    "bf16_true": Precision.BF16,
    "amp": Precision.MIXED_FP16_FP32,
    "mixed": Precision.MIXED_FP16_FP32,
    "16": Precision.MIXED_FP16_FP32,
    "16_mixed": Precision.MIXED_FP16_FP32,
    "fp16_mixed": Precision.MIXED_FP16_FP32,
    "mixed_fp16": Precision.MIXED_FP16_FP32,
    "mixed_float16": Precision.MIXED_FP16_FP32,
    "amp_fp16": Precision.MIXED_FP16_FP32,
    "o1": Precision.MIXED_FP16_FP32,
    "o2": Precision.MIXED_FP16_FP32,
    "__fp16": Precision.MIXED_FP16_FP32,
    "__amp": Precision.MIXED_FP16_FP32,
    "bf16_mixed": Precision.MIXED_BF16_FP32,
    "mixed_bf16": Precision.MIXED_BF16_FP32,
    "mixed_bfloat16": Precision.MIXED_BF16_FP32,
    "amp_bf16": Precision.MIXED_BF16_FP32,
    "__bf16": Precision.MIXED_BF16_FP32,
    "fp8": Precision.MIXED_FP8_BF16,
    "mixed_fp8": Precision.MIXED_FP8_BF16,
    "amp_fp8": Precision.MIXED_FP8_BF16,
    "mxfp8": Precision.MIXED_FP8_BF16,
    "fp8_mx": Precision.MIXED_FP8_BF16,
    "fp8_cs": Precision.MIXED_FP8_BF16,
    "bf16_with_mxfp8_mixed": Precision.MIXED_FP8_BF16,
    "bf16_with_fp8_current_scaling_mixed": Precision.MIXED_FP8_BF16,
    "nvfp4": Precision.MIXED_FP4_BF16,
    "fp4": Precision.MIXED_FP4_BF16,
    "mixed_nvfp4_bf16": Precision.MIXED_FP4_BF16,
    "bf16_with_nvfp4_mixed": Precision.MIXED_FP4_BF16,
    "transformer_engine": Precision.MIXED_FP8_BF16,
    "transformer_engine_float16": Precision.MIXED_FP8_FP16,
}


def parse_precision(text: str) -> Precision:
    """The policy a user's word means; raises JobError with the nearest words.

    `fp16` and `bf16` alone mean everything in that format (as torch's ``model.half()``); the
    flags ``--fp16`` and ``--bf16`` of training scripts mean autocast.
    """
    key = text.strip().lower().replace("-", "_")
    if key in ALIASES:
        return ALIASES[key]
    try:
        return Precision(key)
    except ValueError:
        words = [*(p.value for p in Precision), "amp", "bf16-mixed", "fp8", "O1"]
        raise JobError("precision", text, accepted(key, words)) from None
