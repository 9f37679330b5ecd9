"""Peaks a data sheet would state, measured: FLOP/s of a large product, bytes/s of a large copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch

from .timing import Timer

TERA = 1e12
# A peak is the best of this many samples, and of all that fit in so many seconds.
FEWEST, SAMPLED_S = 5, 0.05
# A product or a copy this long has reached its rate; one shorter is doubled.
LONG_ENOUGH = 0.02
SMALLEST, LARGEST = 256, 16384  # side of the matrices
# Bytes copied: too many for the last cache, but a small share of the memory.
CACHES, COPY_SHARE, FEWEST_COPIED = 2, 0.05, 2**28
PIECES, PASSES = 32, 3
# A CPU that multiplies 16-bit numbers no faster than this times FP32 has no engine for them.
FASTER = 1.2
_TENSOR = {"fp16": torch.float16, "bf16": torch.bfloat16}


@contextmanager
def tf32(wanted: bool) -> Iterator[None]:
    """Let products and convolutions use TF32 or not, and put it back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def cpu_peaks(device: torch.device, timer: Timer) -> dict[str, float]:
    """TFLOP/s by the keys of a sheet; a 16-bit format stands there where it is faster."""
    fp32 = _product_tflops(device, timer, torch.float32)
    found = {"fp32": fp32}
    for name, dtype in _TENSOR.items():
        tflops = _product_tflops(device, timer, dtype)
        if tflops > FASTER * fp32:
            found[f"{name}_tensor"] = tflops
    return found


def gpu_peaks(device: torch.device, timer: Timer, capability: tuple[int, int]) -> dict[str, float]:
    """TFLOP/s by the keys of a sheet, of the formats that a compute capability has."""
    with tf32(False):
        found = {"fp32": _product_tflops(device, timer, torch.float32)}
    if capability >= (7, 0):
        found["fp16_tensor"] = _product_tflops(device, timer, torch.float16)
    if capability >= (8, 0):
        with tf32(True):
            found["tf32"] = _product_tflops(device, timer, torch.float32)
        found["bf16_tensor"] = _product_tflops(device, timer, torch.bfloat16)
    return found


def copy_gb_per_s(device: torch.device, timer: Timer, memory: int, cache: int) -> float:
    """GB/s of a copy, each byte read once and written once: the median of undisturbed samples.

    A CPU copies piece after piece, so that others on the machine do not come into every sample.
    """
    pieces = PIECES if device.type == "cpu" else 1
    each = int(min(max(CACHES * cache, FEWEST_COPIED), COPY_SHARE * memory)) // pieces
    source = torch.zeros(pieces, each, dtype=torch.uint8, device=device)
    runs = [partial(to.copy_, part) for to, part in zip(source.clone(), source, strict=True)]
    samples = [timer.sample(run, 1) for _ in range(PASSES) for run in runs]
    quiet = [sample.seconds for sample in samples if not sample.disturbed]
    return 2 * each / median(quiet or [sample.seconds for sample in samples]) / 1e9


def _product_tflops(device: torch.device, timer: Timer, dtype: torch.dtype) -> float:
    side, best = SMALLEST, 0.0
    while True:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        seconds = _best_s(timer, lambda a=a, b=b: a @ b)  # type: ignore[misc]
        best = max(best, 2 * side**3 / seconds / TERA)
        if seconds > LONG_ENOUGH or side >= LARGEST:
            return best
        side *= 2


def _best_s(timer: Timer, run: Callable[[], object]) -> float:
    run()
    seconds: list[float] = []
    while len(seconds) < FEWEST or sum(seconds) < SAMPLED_S:
        seconds.append(timer.sample(run, 1).seconds)
    return min(seconds)
