"""Rows of the operator table as training samples of the time laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from profiles.conventions import SHAPE_FIELDS, param, parse_params, rnn_gates
from profiles.gpus import CPU, Gpu, find_gpu, gpus
from profiles.tables import OperatorTable

from ...graphs.operator import Direction, Kind
from ...job.precision import Dtype, tensor_peak
from .work import (
    DIMS,
    DIRECTION_CODE,
    DTYPE_CODE,
    DTYPES,
    KIND_CODE,
    KINDS,
    MATRIX_KINDS,
    Engines,
    Floats,
    Ints,
    Work,
    function_number,
)

# A source whose fastest rows take longer than this timed the host launch with the kernel.
KERNEL_TIMED_S = 4e-6
FLOOR_QUANTILE = 0.01
# Of a host-timed source only rows well above its floor say something about the device; about a
# third of the floor still sits in them (checked on element-wise rows of NeuSight on V100, A100).
FLOOR_MULTIPLE = 3.0
FLOOR_SHARE = 0.3

# Linear layers of TensorRT-LLM cast their input first, to FP8 in two passes (what is its largest
# value?), to FP4 in one: seconds of each, elements a clock and SM (fewer on Hopper), and the share
# of the bandwidth for what L2 does not hold, from rows with n up to 256. The last two
# are the least share of a row that its product must be: one in FP4 is soon done beside its cast.
CAST_PASSES = {Dtype.FP8: 2.0, Dtype.FP4: 1.0}
CAST_S, CAST_RATE, HOPPERS, CAST_SHARE, PRODUCT_SHARE, FP4_SHARE = 5e-6, 4.8, 3.0, 0.8, 0.3, 0.7

# Rows that time several kernels as one; our graphs hold each kernel by itself.
SEVERAL_KERNELS = ("unfused", "includes=", "func=rope", "func=silu_mul", "func=bias_dropout_add")

# Share of the watts per FLOP/s of the best fed card below which power holds a card back: T4 reaches
# half the share of its peak that TITAN RTX does, L4 and L40S a third and two thirds of theirs.
HELD_BACK = 0.6
# Products a clock of an SM in 16 bits below which FP32 sums run at half rate (GeForce, A10G): RTX
# 3090 reaches all of such a peak, L40S two thirds of one at full rate.
HALF_RATE = 300

AMD = "cdna"  # what architectures of AMD start with
IMAGE_CHANNELS = 4  # of a photograph or a spectrogram

_MATRIX = [KIND_CODE[kind] for kind in MATRIX_KINDS]
_HEAVY = [*_MATRIX, KIND_CODE[Kind.RNN], KIND_CODE[Kind.ATTENTION]]
_FP32 = DTYPE_CODE[Dtype.FP32]
_CAST = [DTYPE_CODE[dtype] for dtype in CAST_PASSES]
_UNPRICED = -1


@dataclass(frozen=True, slots=True)
class Samples:
    """``n`` measured operators: what was done, where, by whom measured, and device seconds (n,).

    ``architecture`` (n,) is ``sm70`` and the like, ``shape`` (n,) an integer that is equal for
    equal dims.
    """

    work: Work
    seconds: Floats
    architecture: NDArray[np.str_]
    gpu: NDArray[np.str_]
    tdp_w: Floats
    source: NDArray[np.str_]
    shape: Ints

    def take(self, index: NDArray[np.intp]) -> Samples:
        """The samples at ``index``, in that order."""
        return Samples(
            self.work.take(index),
            *(getattr(self, f.name)[index] for f in fields(self) if f.name != "work"),
        )

    def __len__(self) -> int:
        return len(self.seconds)


def architecture_of(gpu: Gpu) -> str:
    """Key of devices that share constants: the instruction set, ``sm80``, or ``gfx942`` of AMD.

    A CPU shares with none but itself.
    """
    if gpu.kind == CPU:
        return gpu.name
    major, minor = gpu.compute_capability
    return f"gfx{major}{minor}" if gpu.architecture.startswith(AMD) else f"sm{major}{minor}"


def silicon_of(gpu: Gpu) -> str:
    """As ``architecture_of``; ``w`` where power holds a card back, ``h`` for sums at half rate."""
    name = architecture_of(gpu)
    if gpu.peak_flops.get("fp16_tensor", np.inf) / 2 < HALF_RATE * gpu.sms * gpu.boost_clock_hz:
        return f"{name}h"
    alike = [g for g in gpus().values() if gpu.kind != CPU and architecture_of(g) == name]
    watts = [g.tdp_w / g.peak_flops["fp32"] for g in (gpu, *alike)]
    return f"{name}w" if watts[0] < HELD_BACK * max(watts) else name


def samples_of(table: OperatorTable, chosen: Mapping[str, Gpu]) -> Samples:
    """Rows of ``table`` on GPUs of ``chosen`` that price one operator on the device alone."""
    rows = _Rows(table)
    floor = np.where(rows.cpu, 0.0, _floors(table, rows.gpu))
    cast_s = rows.cast_s()
    index = np.flatnonzero(
        rows.priced()
        & np.array([gpu.name in chosen for gpu in rows.hardware])[rows.gpu]
        & (table.time_s > FLOOR_MULTIPLE * floor)
        & (table.time_s - cast_s > rows.least_share() * table.time_s)
    )
    work = rows.work(index)
    gpu = rows.gpu[index]
    return Samples(
        work=work,
        seconds=table.time_s[index] - FLOOR_SHARE * floor[index] - cast_s[index],
        architecture=np.array([silicon_of(g) for g in rows.hardware])[gpu],
        gpu=np.array([g.name for g in rows.hardware])[gpu],
        tdp_w=np.array([g.tdp_w for g in rows.hardware])[gpu],
        source=table.source[index],
        shape=np.unique(work.dims, axis=0, return_inverse=True)[1].reshape(-1),
    )


def _floors(table: OperatorTable, gpu: Ints) -> Floats:
    """Fixed launch cost inside each row: 0 where the source timed kernels."""
    source = np.unique(table.source, return_inverse=True)[1]
    pair = source * (int(gpu.max(initial=0)) + 1) + gpu
    floor = np.zeros(len(table))
    for code in np.unique(pair):
        rows = pair == code
        smallest = float(np.quantile(table.time_s[rows], FLOOR_QUANTILE))
        floor[rows] = smallest if smallest > KERNEL_TIMED_S else 0.0
    return floor


def _coded(values: NDArray[np.str_], codes: Mapping[str, int]) -> Ints:
    words, inverse = np.unique(values, return_inverse=True)
    return np.array([codes.get(str(word), _UNPRICED) for word in words])[inverse]


def _function(words: str) -> int:
    op, params, direction = words.split("|")
    told = parse_params(params)
    name = "sum" if op == "reduction" else told.get("func", "")
    if op == "pool" and told.get("kind") == "max":
        name = "max_pool"
    return function_number(name, backward=direction != "fwd")


class _Rows:
    """Codes of every row of a table, and the arrays the time laws want."""

    def __init__(self, table: OperatorTable) -> None:
        names, self.gpu = np.unique(table.gpu, return_inverse=True)
        self.table = table
        self.hardware: Sequence[Gpu] = [find_gpu(str(name)) for name in names]
        self.kind = _coded(table.op, {word: KIND_CODE[kind] for word, kind in KIND_OF.items()})
        self.direction = _coded(
            table.direction, {word: DIRECTION_CODE[d] for word, d in DIRECTION_OF.items()}
        )
        self.dtype = _coded(table.dtype, {d.value: code for d, code in DTYPE_CODE.items()})
        tensor = [
            [tensor_peak(gpu, dtype) is not None for dtype in DTYPES] for gpu in self.hardware
        ]
        self.tensor = np.array(tensor)[self.gpu, self.dtype]
        self.cpu = np.array([gpu.kind == CPU for gpu in self.hardware])[self.gpu]
        for words, kind in KIND_MARKED.items():
            marked = np.char.find(table.params, words) >= 0
            self.kind[marked & ~self.cpu] = KIND_CODE[kind]
        self.dims = np.full((len(table), DIMS), np.nan)
        for code in np.unique(self.kind[self.kind != _UNPRICED]):
            rows = np.flatnonzero(self.kind == code)
            self.dims[rows] = dims_of(table, KINDS[code], self.direction[rows], rows)

    def priced(self) -> NDArray[np.bool_]:
        """False where a row prices no single operator of ours.

        That is both gradients of a matrix product in one, 16-bit matrix work off tensor cores,
        the weight gradient of a recurrent layer (a GEMM in our graphs), that of an embedding
        table (its rows do not count the gradient of the whole table), that of an image, which
        training never needs, several kernels in one row, and unknown shapes.
        """
        both = np.isin(self.kind, _MATRIX) & (self.table.direction == "bwd")
        plain = np.isin(self.kind, _HEAVY) & (self.dtype != _FP32) & ~self.tensor & ~self.cpu
        weight = self.direction == DIRECTION_CODE[Direction.WEIGHT_GRADIENT]
        recurrent = (self.kind == KIND_CODE[Kind.RNN]) & weight
        known = np.isfinite(self.dims).all(axis=1) & np.isfinite(self.table.bytes)
        table = (self.kind == KIND_CODE[Kind.EMBEDDING]) & (self.table.direction == "bwd")
        table &= ~self.cpu
        data = self.direction == DIRECTION_CODE[Direction.DATA_GRADIENT]
        channels = self.dims[:, 1] * self.dims[:, 3]
        image = (self.kind == KIND_CODE[Kind.CONV]) & data & (channels <= IMAGE_CHANNELS)
        several = np.zeros(len(self.table), dtype=bool)
        for words in SEVERAL_KERNELS:
            several |= np.char.find(self.table.params, words) >= 0
        coded = (self.kind != _UNPRICED) & (self.direction != _UNPRICED)
        return np.asarray(coded & known & ~(both | plain | recurrent | table | image | several))

    def cast_s(self) -> Floats:
        """Seconds (n,) of each row in which a linear layer casts its input, else 0."""
        table, seconds = self.table, np.zeros(len(self.table))
        layers = np.char.find(table.params, "kernel=torch_flow") >= 0
        for row in np.flatnonzero(layers & np.isin(self.dtype, _CAST)).tolist():
            gpu, dtype = self.hardware[self.gpu[row]], DTYPES[self.dtype[row]]
            elements, passes = table.m[row] * table.k[row], CAST_PASSES[dtype]
            rate = HOPPERS if gpu.compute_capability[0] == 9 else CAST_RATE
            computed = passes * elements / (rate * gpu.sms * gpu.boost_clock_hz)
            beyond = elements * (2.0 * passes + dtype.bytes) - gpu.l2_bytes
            moved = beyond / (CAST_SHARE * gpu.bandwidth_bytes_per_s)
            seconds[row] = passes * CAST_S + max(computed, moved)
        return seconds

    def least_share(self) -> Floats:
        """Share (n,) of each row that its product must be at least."""
        fp4 = self.dtype == DTYPE_CODE[Dtype.FP4]
        return np.where(fp4, FP4_SHARE, PRODUCT_SHARE)

    def _functions(self, index: NDArray[np.intp]) -> Ints:
        """Number of the element-wise function of each row; a sum has a word of its own."""
        table = self.table
        words = np.char.add(np.char.add(table.op[index], "|"), table.params[index])
        words = np.char.add(np.char.add(words, "|"), table.direction[index])
        unique, inverse = np.unique(words, return_inverse=True)
        return np.array([_function(str(word)) for word in unique], dtype=np.int64)[inverse]

    def work(self, index: NDArray[np.intp]) -> Work:
        """The rows at ``index`` as the time laws see them."""
        gpu, dtype, hardware = self.gpu[index], self.dtype[index], self.hardware
        engines = [Engines(g) for g in hardware]
        lane = dtype * 2 + self.tensor[index]

        def spec(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=float)[gpu]

        return Work(
            kind=self.kind[index],
            direction=self.direction[index],
            format_class=np.stack([e.format_class for e in engines])[gpu, lane],
            element_bytes=np.array([d.bytes for d in DTYPES], dtype=float)[dtype],
            dims=self.dims[index],
            flops=self.table.flops[index],
            bytes=self.table.bytes[index],
            # one launch a row; a CPU goes through the tensors of a list one by one
            kernels=np.where(self.cpu[index], param(self.table.params[index], "tensors", 1.0), 1.0),
            rate=np.stack([e.rate for e in engines])[gpu, lane],
            fp32_rate=spec([g.peak_flops["fp32"] for g in hardware]),
            bandwidth=spec([g.bandwidth_bytes_per_s for g in hardware]),
            sms=spec([float(g.sms) for g in hardware]),
            l2=spec([float(g.l2_bytes) for g in hardware]),
            dtype=dtype,
            function=self._functions(index),
        )


# Table words -> kinds. A composite row times a GEMM and a loss together, so it prices neither.
_OTHER_WORDS = {
    "conv2d": "conv",
    "batchnorm": "batch_norm",
    "layernorm": "layer_norm",
    "reduction": "elementwise",
}
KIND_OF = {op: Kind(_OTHER_WORDS.get(op, op)) for op in SHAPE_FIELDS if op != "composite"}
# What a profiler marks in ``params``, as table words have no name for it: kinds of their own on a
# GPU. On a CPU the cells tell them apart.
KIND_MARKED = {
    "kind=groupnorm": Kind.GROUP_NORM,
    "kind=log_softmax": Kind.LOSS,
    "func=foreach_": Kind.OPTIMIZER,
    "func=fused_": Kind.OPTIMIZER,
}
# ``bwd`` is the whole backward: one operator of a memory-bound kind, two of a matrix kind.
DIRECTION_OF = {
    "fwd": Direction.FORWARD,
    "bwd": Direction.DATA_GRADIENT,
    "bwd_data": Direction.DATA_GRADIENT,
    "bwd_weight": Direction.WEIGHT_GRADIENT,
}
_DATA = DIRECTION_CODE[Direction.DATA_GRADIENT]
_WEIGHT = DIRECTION_CODE[Direction.WEIGHT_GRADIENT]


def dims_of(table: OperatorTable, kind: Kind, direction: Ints, rows: NDArray[np.intp]) -> Floats:
    """Zero-padded dims (len(rows), 6) of ``rows``, all of one kind; ``direction`` is theirs."""
    columns = _COLUMNS.get(kind, _flat)(table, direction, rows)
    dims = np.zeros((len(rows), DIMS))
    dims[:, : len(columns)] = np.stack(columns, axis=1)
    return dims


def _gemm(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    m, n, k = table.m[rows], table.n[rows], table.k[rows]
    data, weight = direction == _DATA, direction == _WEIGHT
    return [np.where(weight, k, m), np.where(data, k, n), np.where(data, n, np.where(weight, m, k))]


def _batched(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    return [*_gemm(table, direction, rows), table.batch[rows]]


def _conv(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    def column(name: str) -> Floats:
        return np.asarray(getattr(table, name)[rows])

    groups = column("groups")
    inputs, outputs = column("in_c") / groups, column("out_c") / groups
    volume = column("kernel_h") * column("kernel_w")
    high = _positions(column("in_h"), column("pad_h"), column("kernel_h"), column("stride_h"))
    wide = _positions(column("in_w"), column("pad_w"), column("kernel_w"), column("stride_w"))
    rows_out = column("in_n") * high * wide
    rows_in = column("in_n") * column("in_h") * column("in_w")
    data, weight = direction == _DATA, direction == _WEIGHT
    return [
        np.where(weight, inputs * volume, np.where(data, rows_in, rows_out)),
        np.where(data, inputs, outputs),
        np.where(weight, rows_out, np.where(data, outputs, inputs) * volume),
        groups,
        volume,
        column("stride_h") * column("stride_w"),
    ]


def _positions(size: Floats, pad: Floats, kernel: Floats, stride: Floats) -> Floats:
    return np.floor((size + 2 * pad - kernel) / stride) + 1


def _attention(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    length = table.seq_len[rows]
    return [length, length, table.head_dim[rows], table.batch[rows] * table.heads[rows]]


def _rnn(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    params = table.params[rows]
    one_layer = np.where(param(params, "layers", 1.0) == 1, 1.0, np.nan)
    hidden = param(params, "hidden", np.nan) * one_layer
    return [table.seq_len[rows], table.batch[rows], hidden, rnn_gates(params)]


def _flat(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    known = ~np.isnan(table.rows[rows] * table.cols[rows])
    return [
        np.where(known, table.rows[rows], 1.0),
        np.where(known, table.cols[rows], table.elements[rows]),
    ]


_COLUMNS: dict[Kind, Callable[[OperatorTable, Ints, NDArray[np.intp]], list[Floats]]] = {
    Kind.GEMM: _gemm,
    Kind.BATCHED_GEMM: _batched,
    Kind.CONV: _conv,
    Kind.ATTENTION: _attention,
    Kind.RNN: _rnn,
}
