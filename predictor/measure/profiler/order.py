"""Which case comes next: families in turn, shapes of known networks between spread ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import torch

from profiles.conventions import MATMUL_OPS
from profiles.gpus import CPU, Gpu
from profiles.storage import shipped_yaml

from ...graphs.catalog import entry_of, graph_of
from ...graphs.operator import Direction, Kind, Operator, Workload
from ...job.precision import Precision
from ...physics.autocast import TypedOperator, autocast
from .case import Case, CaseLimits, Family, Shape, roofline_s
from .families import FAMILIES, formats_of
from .families.layers import conv_shape, rows_shape
from .families.pointwise import function_shape
from .families.products import cell_shape

SEED = 7
POINTS = 4096  # of one family; no run of hours times 4096 shapes of each
# Shapes in a row that are too large or known already before a family is given up for this run.
MISSES = 200
MODELS: tuple[str, ...] = tuple(shipped_yaml("popular.yaml", __file__))
_PRECISIONS = (
    (Precision.FP32, "fp32"),
    (Precision.TF32, "tf32"),
    (Precision.MIXED_FP16_FP32, "fp16"),
    (Precision.MIXED_BF16_FP32, "bf16"),
)
_CELLS = {4: "lstm", 3: "gru"}
Key = tuple[str, str]  # family and format
Known = Mapping[Key, Sequence[Shape]]
_Found = dict[Key, dict[tuple[tuple[tuple[str, int], ...], str], float]]


def ordered(
    limits: CaseLimits, formats: tuple[str, ...], known: Callable[[], Known]
) -> Iterator[Case]:
    """Cases that fit, round after round over all families and formats, until none is left.

    The first round is of spread shapes alone: ``known`` is asked after it.
    """
    known = cache(known)
    queues = [
        (family.turns, _queue(family, dtype, limits, known))
        for family in FAMILIES
        for dtype in formats_of(family, formats)
    ]
    while queues:
        left = []
        for turns, queue in queues:
            taken = list(islice(queue, turns))
            yield from taken
            if taken:
                left.append((turns, queue))
        queues = left


def _queue(
    family: Family, dtype: str, limits: CaseLimits, known: Callable[[], Known]
) -> Iterator[Case]:
    """Spread and known shapes in turn, each once."""

    def shapes() -> Iterator[Shape]:
        spread = _spread(family, cpu=limits.gpu.kind == CPU)
        yield from islice(spread, family.turns)
        for shape in known().get((family.name, dtype), ()):
            yield shape
            yield from islice(spread, 1)
        yield from spread

    seen: set[str] = set()
    misses = 0
    for shape in shapes():
        case = Case(family=family.name, op=family.op, dtype=dtype, shape=shape)
        name = f"{case.cell} {shape.params}"
        if name not in seen and limits.allow(case):
            misses = 0
            yield case
        else:
            misses += 1
        seen.add(name)
        if misses > MISSES:
            return


def _spread(family: Family, *, cpu: bool) -> Iterator[Shape]:
    """Shapes at the points of a scrambled Sobol sequence over the axes (Owen 1998)."""
    engine = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
        len(family.axes), scramble=True, seed=SEED
    )
    for shares in engine.draw(POINTS).tolist():
        point = {
            axis.name: axis.at(share, cpu) for axis, share in zip(family.axes, shares, strict=True)
        }
        shape = family.shape(point)
        if shape is not None:
            yield shape


def popular(gpu: Gpu, formats: Sequence[str]) -> Known:
    """By family and format: the shapes of ``MODELS`` in falling share of the roofline step."""
    found: _Found = defaultdict(lambda: defaultdict(float))
    for name in MODELS:
        entry = entry_of(name)
        for batch in (2, 8) if gpu.kind == CPU else (8, 64):
            work = Workload(
                batch, seq_len=entry.seq_len, image_size=entry.image_size, flash_attention=True
            )
            graph = graph_of(name, (), work)
            for precision, dtype in _PRECISIONS:
                if dtype in formats:
                    _count(found, gpu, batch, autocast(graph, precision, gpu))
    return {
        key: [
            Shape(dict(sizes), params)
            for sizes, params in sorted(shares, key=lambda shape: (-shares[shape], shape))
        ]
        for key, shares in found.items()
    }


def _count(found: _Found, gpu: Gpu, batch: int, operators: Sequence[TypedOperator]) -> None:
    seconds = [t.operator.count * _seconds(gpu, t) for t in operators]
    whole = sum(seconds)
    for typed, part in zip(operators, seconds, strict=True):
        operator = typed.operator
        if operator.direction is not Direction.FORWARD:
            continue
        for family, shape in _shapes_of(operator, batch):
            key = tuple(sorted(shape.sizes.items())), shape.params
            found[family, typed.dtype.value][key] += part / whole


def _seconds(gpu: Gpu, typed: TypedOperator) -> float:
    kind = typed.operator.kind
    op = "conv2d" if kind is Kind.CONV else kind.value
    dtype = typed.dtype.value if op in MATMUL_OPS else "fp32"
    return roofline_s(gpu, op, dtype, typed.operator.flops, typed.bytes)


def _shapes_of(operator: Operator, batch: int) -> Iterator[tuple[str, Shape]]:
    """Family and shape of a forward operator, as far as its dims tell it."""
    dims = operator.dims
    match operator.kind:
        case Kind.GEMM:
            yield "gemm", Shape(dict(zip("mnk", dims, strict=True), batch=1), "b_t=T")
        case Kind.BATCHED_GEMM:
            sizes = dict(zip(("m", "n", "k", "batch"), dims, strict=True))
            yield "batched gemm", Shape(sizes, "b_t=T")
        case Kind.CONV:
            yield from _convolutions(dims, batch)
        case Kind.ATTENTION if dims[0] == dims[1]:
            sizes = {
                "batch": batch,
                "heads": max(1, dims[3] // batch),
                "head_dim": dims[2],
                "seq_len": dims[0],
            }
            yield "attention", Shape(sizes, "causal=0")
        case Kind.RNN if dims[3] in _CELLS:
            point = {"batch": dims[1], "seq_len": dims[0], "hidden": dims[2]}
            yield "recurrent", cell_shape(_CELLS[dims[3]], point)
        case Kind.LAYER_NORM:
            yield "layer norm", rows_shape(dims)
        case Kind.SOFTMAX:
            yield "softmax", rows_shape(dims)
        case Kind.LOSS if dims[0] > 1:
            yield "softmax", rows_shape(dims, "kind=log_softmax")
        case Kind.ELEMENTWISE:
            n, function = dims[0] * dims[1], operator.function
            if function != "dropout":  # the commonest with as many inputs
                function = "add" if operator.reads > 1.5 * n else "relu"
            yield "pointwise", function_shape(function, n)


def _convolutions(dims: Sequence[int], batch: int) -> Iterator[tuple[str, Shape]]:
    """A square convolution; nothing for one whose sides cannot be told."""
    positions, out, width, groups, volume, stride = dims
    kernel, step, side = math.isqrt(volume), math.isqrt(stride), math.isqrt(positions // batch)
    if (kernel**2, step**2, batch * side**2) != (volume, stride, positions):
        return
    channels = width // volume * groups
    family = "conv" if groups == 1 else "depthwise conv" if groups == channels else "grouped conv"
    shape = conv_shape(
        {
            "batch": batch,
            "side": side * step,
            "in": channels,
            "out": out * groups,
            "kernel": kernel,
            "stride": step,
            "groups": groups,
            "layout": "nchw",  # torch's own; the spread shapes have both
        }
    )
    if shape is not None:
        yield family, shape
