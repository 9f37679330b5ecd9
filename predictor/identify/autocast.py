"""The precision that several flags mean together, as training scripts take them."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import JobError
from ..job.precision import Precision, parse_precision
from .keys import OFF, ON, key_of

# What a flag that is merely switched on adds; the words of its value may say otherwise.
SIGNALS = ("amp", "fp16", "bf16", "fp8", "tf32", "mixed_precision", "dtype", "amp_dtype")
_FP8_FORMATS = ("hybrid", "e4m3", "e5m2")
_AUTOCAST = {Precision.FP16: Precision.MIXED_FP16_FP32, Precision.BF16: Precision.MIXED_BF16_FP32}
_PURE = ("16_true", "bf16_true", "o3")
_AMP = "amp"


def joint_precision(signals: Mapping[str, str]) -> Precision | None:
    """One precision from flags and their words; None where they say nothing.

    ``fp16`` and ``bf16`` mean autocast here. fp8 goes before 16 bits, those before tf32; ``amp``
    is in fp16 unless another word says bf16. Raises JobError where two of them cannot be.
    """
    said = {p for name, text in signals.items() for p in _meant(name, text)}
    formats = {p for p in said if isinstance(p, Precision)}
    if _AMP in said and not formats & {Precision.MIXED_FP16_FP32, Precision.MIXED_BF16_FP32}:
        formats.add(Precision.MIXED_FP16_FP32)
    if "amp" not in signals and "amp_dtype" in signals and set(signals) == {"amp_dtype"}:
        return None
    halves = formats & {Precision.MIXED_FP16_FP32, Precision.MIXED_BF16_FP32}
    if len(halves) > 1:
        raise JobError("precision", "fp16 and bf16", "expected one of them")
    if Precision.MIXED_FP8_BF16 in formats and Precision.MIXED_FP16_FP32 in formats:
        return Precision.MIXED_FP8_FP16
    return next((p for p in _STRONGEST_FIRST if p in formats), None)


_STRONGEST_FIRST = (
    Precision.MIXED_FP8_FP16,
    Precision.MIXED_FP8_BF16,
    Precision.MIXED_FP16_FP32,
    Precision.MIXED_BF16_FP32,
    Precision.FP16,
    Precision.BF16,
    Precision.TF32,
    Precision.FP32,
)


def _meant(name: str, text: str) -> tuple[Precision | str, ...]:
    """What one flag with its word adds; ``_AMP`` for autocast in a format yet to be said."""
    word = key_of(text)
    if word in OFF:
        # `--mixed_precision no` is said on purpose; `--fp16 False` leaves open what else.
        return (Precision.FP32,) if name in ("mixed_precision", "dtype") and word == "no" else ()
    if word in ON or (name == "fp8" and word in _FP8_FORMATS):
        return (_AMP,) if name in (_AMP, "mixed_precision") else (_alone(name),)
    if name == "fp16" and word in ("o1", "o2"):
        return (Precision.MIXED_FP16_FP32,)
    if word == _AMP:
        return (_AMP,)
    meant = parse_precision(word)
    return (meant if word in _PURE else _AUTOCAST.get(meant, meant),)


def _alone(name: str) -> Precision:
    meant = parse_precision(name)
    return _AUTOCAST.get(meant, meant)
