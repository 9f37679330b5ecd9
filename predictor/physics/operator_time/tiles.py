"""Matrix work (GEMM, batched GEMM, convolution): tiles of the output in waves over the SMs.

A library computes C[m,n] in tiles, each on one SM, with or without splitting k; it picks the
tile and the split that finish first. A tile of (a, b) needs 2ab(k + k0) FLOPs at the rate of one
SM, slowed by the share (1/a + 1/b) of operand loads from L2. Tiles run in waves, the last one
partly empty. Memory traffic overlaps with that, launch and drain latency does not. All of it is
monotone in m, n, k and batch, so the minimum over tiles and splits is too. The one exception is
alignment: tensor cores want leading dimensions in multiples of 8, to which cuDNN fills up channels.

Convolutions are implicit GEMMs, with an efficiency per class and direction: 1x1, 3x3 (Winograd in
FP32, hence above peak), 5x5, and all others.
"""

from __future__ import annotations

import numpy as np

from ...graphs.operator import Direction, Kind
from .laws import Constant, Law, power_mean, sigmoid
from .work import CLASSES, CORES, DIRECTION_CODE, KIND_CODE, Floats, Ints, Work

# Along the first axis, so that operators lie side by side in memory.
TILE_M = np.array([[256, 128, 128, 64, 128, 64, 64, 32, 64, 32, 16.0]]).T
TILE_N = np.array([[128, 256, 128, 128, 64, 64, 32, 64, 16, 32, 64.0]]).T
SPLITS = np.array([[1, 2, 4, 8, 16, 32.0]]).T
LOADS = 128.0 * (1.0 / TILE_M + 1.0 / TILE_N)
MIN_K = 32.0  # the depth of one main-loop step
PARTIAL_BYTES = 4.0  # split-k partial sums are FP32
ALIGNMENT = 8

BASE = 8
CONV_CLASSES = ("1x1", "3x3", "5x5", "other")
MATRIX_CONSTANTS = (
    Constant("efficiency", -0.1, 0.5),
    Constant("load_cost", -1.5, 0.6),
    Constant("depth_latency", 3.0, 0.7),
    Constant("memory_efficiency", -0.25, 0.2),
    Constant("latency_us", 1.0, 0.15),
    Constant("wave_quantisation", 0.0, 1.5),
    Constant("split_cost", 0.0, 0.8),
    Constant("misalignment", 0.2, 0.5),
)
CONV_CONSTANTS = MATRIX_CONSTANTS + tuple(
    Constant(f"{shape}_{direction}", 0.0, 0.4)
    for shape in CONV_CLASSES
    for direction in ("forward", "data_gradient", "weight_gradient")
)

# Grouped and depthwise convolutions have direct kernels on ordinary cores, and no measured rows:
# shares of the memory bandwidth (forward, data, weight gradient) and of the FP32 peak, chosen on
# timm's depthwise networks in 16 bits. In FP32, where cuDNN has no such kernels (pytorch 22302),
# depthwise ones reduce and compute at half of that: chosen on those of DeepLearningExamples.
DIRECT_BANDWIDTH = np.array([[0.6, 0.6, 0.3], [0.6, 0.6, 0.15]])
DIRECT_RATE = np.array([0.08, 0.04])

_WEIGHT = DIRECTION_CODE[Direction.WEIGHT_GRADIENT]
_DATA = DIRECTION_CODE[Direction.DATA_GRADIENT]
_CONV = KIND_CODE[Kind.CONV]


def matrix_seconds(p: Floats, work: Work) -> Floats:
    """Seconds of gemm, batched_gemm and conv operators; ``p`` is (n or 1, 8 or 20)."""
    conv = work.kind == _CONV
    m, n, k = _padded(work, conv)
    batch = np.maximum(work.dims[:, 3], 1.0)
    c = np.exp(p[:, :5])
    rate = work.rate * c[:, 0]
    if p.shape[1] > BASE and conv.any():
        rate = rate * np.exp(_conv_offset(p, work, conv))
    compute = _tiled(p, c, work, m, n, k, batch, rate / work.sms)
    if np.any(misaligned := _misaligned(work) & ~conv):
        # at worst the tensor cores are left alone and the ordinary cores do the work
        ceiling = np.maximum(np.log(work.rate / work.fp32_rate), 0.5)
        penalty = np.exp(np.clip(p[:, 7], 0.0, ceiling))
        compute = compute * np.where(misaligned, penalty, 1.0)
    if np.any(grouped := conv & (batch > 1)):
        direct = _direct(work)
        compute = np.where(grouped, np.minimum(compute, direct), compute)
        compute = np.where(grouped & _direct_only(work), direct, compute)
    memory = work.bytes / (work.bandwidth * c[:, 3])
    return np.asarray(c[:, 4] * 1e-6 + power_mean(compute, memory))


def _tiled(
    p: Floats, c: Floats, work: Work, m: Floats, n: Floats, k: Floats, batch: Floats, rate: Floats
) -> Floats:
    tiles = np.ceil(m / TILE_M) * np.ceil(n / TILE_N) * (batch / work.sms)
    per_depth = (2.0 * TILE_M * TILE_N) * (1.0 + c[:, 1] * LOADS) / rate
    quantised = sigmoid(p[:, 5])
    partial = np.exp(p[:, 6]) * batch * m * n * PARTIAL_BYTES / work.bandwidth
    waves = tiles * SPLITS[:, None]  # (splits, tiles, n)
    waves = quantised * np.ceil(waves) + (1.0 - quantised) * np.maximum(waves, 1.0)
    waves *= per_depth
    seconds = waves.min(axis=1) * (np.maximum(k / SPLITS, MIN_K) + c[:, 2])
    seconds[1:] += SPLITS[1:] * partial
    return np.asarray(seconds.min(axis=0))


def _conv_offset(p: Floats, work: Work, conv: np.ndarray) -> Floats:
    column = BASE + 3 * conv_class(work) + np.minimum(work.direction, _WEIGHT)
    row = np.arange(len(work)) if len(p) > 1 else 0
    return np.where(conv, p[row, column], 0.0)


def conv_class(work: Work) -> Ints:
    """Index into ``CONV_CLASSES`` of each operator.

    Tensor cores take any number of taps alike where the channels are wide, as they have no
    Winograd; a stride costs them nothing but in the data gradient, which it leaves full of gaps.
    """
    volume, stride = work.dims[:, 4], work.dims[:, 5]
    weight = work.direction == _WEIGHT
    wide = np.where(weight, work.dims[:, 0], work.dims[:, 2]) > ALIGNMENT * volume
    tensor_cores = work.format_class != CLASSES.index(CORES)
    whole = (stride == 1) | (work.direction != _DATA)
    dense = (stride == 1) | (whole & tensor_cores)
    taps = (volume == 9) | (tensor_cores & (volume > 1))
    three = np.where(taps & wide & dense, 1, 3)
    return np.where((volume == 1) & whole, 0, np.where((volume == 25) & dense, 2, three))


def _padded(work: Work, conv: np.ndarray) -> tuple[Floats, Floats, Floats]:
    """(m, n, k) of the work that is done.

    Of the k of a strided convolution's data gradient only what FLOPs count is multiplied. cuDNN
    fills the channels of a tensor-core convolution up to a multiple of 8.
    """
    m, n, k = work.dims[:, 0], work.dims[:, 1], work.dims[:, 2]
    if conv.any():
        products = np.maximum(2.0 * m * n * np.maximum(work.dims[:, 3], 1.0), 1.0)
        k = np.where(conv, np.minimum(k, np.maximum(work.flops / products, 1.0)), k)
    filled = conv & (work.format_class != CLASSES.index(CORES)) & (work.dims[:, 3] <= 1)
    if not filled.any():
        return m, n, k
    volume, weight = np.maximum(work.dims[:, 4], 1.0), work.direction == _WEIGHT
    return (
        np.where(filled & weight, _fill(m / volume) * volume, m),
        np.where(filled, _fill(n), n),
        np.where(filled & ~weight, _fill(k / volume) * volume, k),
    )


def _fill(channels: Floats) -> Floats:
    return np.asarray(np.ceil(channels / ALIGNMENT) * ALIGNMENT)


def _misaligned(work: Work) -> np.ndarray:
    m, n, k = work.dims[:, 0], work.dims[:, 1], work.dims[:, 2]
    inner = np.where(work.direction == _WEIGHT, m, k)
    tensor_cores = work.format_class != CLASSES.index(CORES)
    return np.asarray(tensor_cores & ((inner % ALIGNMENT != 0) | (n % ALIGNMENT != 0)))


def _direct(work: Work) -> Floats:
    direction = np.minimum(work.direction, _WEIGHT)
    own = (_depthwise(work) & (work.element_bytes > 2)).astype(np.intp)
    memory = work.bytes / (work.bandwidth * DIRECT_BANDWIDTH[own, direction])
    return power_mean(memory, work.flops / (work.fp32_rate * DIRECT_RATE[own]))


def _direct_only(work: Work) -> np.ndarray:
    """Depthwise, or 16-bit off the tensor cores: no kernel works in tiles there."""
    off_tensor_cores = (work.format_class == CLASSES.index(CORES)) & (work.element_bytes == 2)
    return np.asarray(_depthwise(work) | off_tensor_cores)


def _depthwise(work: Work) -> np.ndarray:
    depth = np.where(work.direction == _WEIGHT, work.dims[:, 0], work.dims[:, 2])
    return np.asarray(depth <= work.dims[:, 4])


GEMM = Law("gemm", MATRIX_CONSTANTS, matrix_seconds)
BATCHED_GEMM = Law("batched_gemm", MATRIX_CONSTANTS, matrix_seconds)
CONV = Law("conv", CONV_CONSTANTS, matrix_seconds)
