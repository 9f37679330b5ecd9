"""Operators of one GPU as arrays: what the time laws see of shape, format and hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import Gpu
from profiles.storage import shipped_yaml

from ...graphs.operator import FORWARD, Direction, Kind
from ...job.precision import Dtype, tensor_peak
from ..autocast import TypedOperator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = tuple(Kind)
DIRECTIONS = tuple(Direction)
DTYPES = tuple(Dtype)
MATRIX_KINDS = (Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV)
KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}
DIRECTION_CODE = {direction: code for code, direction in enumerate(DIRECTIONS)}
DTYPE_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}
DIMS = 6
_PADDING = tuple((0,) * (DIMS - n) for n in range(DIMS + 1))

# Classes of formats that share constants; the rate and the bytes differ inside a class.
CORES, TF32, HALF, FP8, FP4 = "cores", "tf32", "half", "fp8", "fp4"
CLASSES = (CORES, TF32, HALF, FP8, FP4)
_CLASS_OF = {Dtype.TF32: TF32, Dtype.FP8: FP8, Dtype.FP4: FP4}


@dataclass(frozen=True, slots=True)
class Work:
    """``n`` operators of one GPU or of many.

    ``dims`` (n, 6) is zero-padded ``Operator.dims``. ``rate`` (n,) is the peak FLOP/s of the
    format on the engine that runs it, ``fp32_rate`` that of the ordinary cores; ``bandwidth`` in
    bytes/s, ``l2`` in bytes. Codes index ``KINDS``, ``DIRECTIONS``, ``CLASSES``;
    ``element_bytes`` is the width of the stored format; ``dtype`` indexes ``DTYPES`` and
    ``function`` the element-wise ``FUNCTIONS``; only CPUs are priced by them.
    """

    kind: Ints
    direction: Ints
    format_class: Ints
    element_bytes: Floats
    dims: Floats
    flops: Floats
    bytes: Floats
    kernels: Floats
    rate: Floats
    fp32_rate: Floats
    bandwidth: Floats
    sms: Floats
    l2: Floats
    dtype: Ints
    function: Ints

    def take(self, index: NDArray[np.intp]) -> Work:
        """The operators at ``index``, in that order."""
        return Work(**{name: getattr(self, name)[index] for name in self.__slots__})

    def __len__(self) -> int:
        return len(self.kind)


def engine(gpu: Gpu, dtype: Dtype, tensor_core: bool) -> tuple[str, float]:
    """Format class and peak FLOP/s that price ``dtype``: (class, FLOP/s)."""
    peak = tensor_peak(gpu, dtype) if tensor_core else None
    if peak is None:
        plain = Dtype.FP32 if dtype is Dtype.TF32 else dtype
        # Formats that ordinary cores lack are emulated at the FP32 rate.
        return CORES, max(gpu.peak_flops.get(plain.value, 0.0), gpu.peak_flops["fp32"])
    return _CLASS_OF.get(dtype, HALF), peak


class Engines:
    """Format class and rate of every (dtype, tensor core or not) of one GPU, for lookups."""

    def __init__(self, gpu: Gpu) -> None:
        pairs = [engine(gpu, dtype, tensor) for dtype in DTYPES for tensor in (False, True)]
        self.format_class = np.array([CLASSES.index(name) for name, _ in pairs])
        self.rate = np.array([rate for _, rate in pairs])
        self.gpu = gpu


_ELEMENT_BYTES = np.array([dtype.bytes for dtype in DTYPES], dtype=float)


def work_of(engines: Engines, operators: Sequence[TypedOperator]) -> Work:
    """Arrays of ``operators`` on the GPU of ``engines``."""
    inner = [typed.operator for typed in operators]
    n = len(inner)
    # Column by column: numpy takes a flat list of numbers of one type much faster than tuples.
    dims = list(chain.from_iterable([o.dims + _PADDING[len(o.dims)] for o in inner]))
    dtype = np.array([DTYPE_CODE[t.dtype] for t in operators], dtype=np.int64)
    engine_code = dtype * 2 + np.array([t.tensor_core for t in operators], dtype=np.int64)
    gpu = engines.gpu
    return Work(
        kind=np.array([KIND_CODE[o.kind] for o in inner], dtype=np.int64),
        direction=np.array([DIRECTION_CODE[o.direction] for o in inner], dtype=np.int64),
        format_class=engines.format_class[engine_code],
        element_bytes=_ELEMENT_BYTES[dtype],
        dims=np.array(dims).reshape(n, DIMS).astype(float),
        flops=np.array([o.flops for o in inner], dtype=float),
        bytes=np.array([t.bytes for t in operators], dtype=float),
        kernels=np.array([o.kernels for o in inner], dtype=float),
        rate=engines.rate[engine_code],
        fp32_rate=np.full(n, gpu.peak_flops["fp32"]),
        bandwidth=np.full(n, gpu.bandwidth_bytes_per_s),
        sms=np.full(n, float(gpu.sms)),
        l2=np.full(n, float(gpu.l2_bytes)),
        dtype=dtype,
        function=np.array(
            [function_number(o.function, o.direction is not FORWARD) for o in inner], dtype=np.int64
        ),
    )


PLAIN, MATH, RANDOM, REDUCTION, LARGEST = range(5)
CLASS_NAMES = ("", "math", "random", "reduction", "largest")

_DATA = shipped_yaml("functions.yaml")
FUNCTIONS = tuple(name for names in _DATA["classes"].values() for name in names)
CLASS_OF = tuple(number for number, names in enumerate(_DATA["classes"].values()) for _ in names)
_ALIASES: dict[str, str] = _DATA["aliases"]
_NUMBER = {name: number for number, name in enumerate(FUNCTIONS)}


@cache
def function_number(name: str, backward: bool = False) -> int:
    """Index into ``FUNCTIONS`` of a function as torch or a table names it, 0 for any other.

    The gradient of a random function multiplies by what was drawn before.
    """
    plain = name.removesuffix("_").removesuffix("_backward").removeprefix("_")
    kernel, _, inner = plain.partition("_")
    if kernel in ("foreach", "fused"):
        plain = "sqrt" if inner == "sqrt" else kernel
    if plain.startswith("max_pool"):
        plain = "max_pool"
    number = _NUMBER.get(_ALIASES.get(plain, plain), 0)
    return _NUMBER["mul"] if backward and CLASS_OF[number] == RANDOM else number
