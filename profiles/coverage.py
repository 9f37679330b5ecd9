"""Which operators were measured on which GPU in which format, and the holes in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .conventions import MATMUL_OPS, SHAPE_FIELDS
from .gpus import Gpu, find_gpu
from .joined import collectives, operators


@dataclass(frozen=True, slots=True)
class Coverage:
    """Rows of one GPU, operator, format and direction; ``rows`` 0 is a hole.

    ``direction`` is ``fwd`` or ``bwd``, where any gradient counts.
    """

    gpu: str
    op: str
    dtype: str
    direction: str
    rows: int

    @property
    def hole(self) -> bool:
        """True where a predictor must carry the operator over from another GPU or format."""
        return self.rows == 0


@dataclass(frozen=True, slots=True)
class CollectiveCoverage:
    """Rows of one GPU and collective, inside a node and across nodes."""

    gpu: str
    op: str
    single_node: int
    multi_node: int


def coverage() -> tuple[Coverage, ...]:
    """Every GPU with an operator table, every operator, every format the GPU can run."""
    table = operators()
    columns = (table.gpu, table.op, table.dtype, table.direction)
    counts: Counter[tuple[str, ...]] = Counter()
    for gpu, op, dtype, direction in zip(*(c.tolist() for c in columns), strict=True):
        counts[gpu, op, dtype, "fwd" if direction == "fwd" else "bwd"] += 1
    names = sorted({key[0] for key in counts})
    return tuple(
        Coverage(name, op, dtype, direction, counts[name, op, dtype, direction])
        for name in names
        for op, dtype in _cells(find_gpu(name))
        for direction in ("fwd", "bwd")
    )


def collective_coverage() -> tuple[CollectiveCoverage, ...]:
    """Every GPU and collective that has a row; an unstated node count is one node."""
    table = collectives()
    counts: Counter[tuple[str, str, bool]] = Counter()
    columns = (table.gpu.tolist(), table.op.tolist(), (table.nodes > 1).tolist())
    for gpu, op, multi in zip(*columns, strict=True):
        counts[gpu, op, multi] += 1
    pairs = sorted({(gpu, op) for gpu, op, _ in counts})
    return tuple(
        CollectiveCoverage(gpu, op, counts[gpu, op, False], counts[gpu, op, True])
        for gpu, op in pairs
    )


def _cells(gpu: Gpu) -> Iterator[tuple[str, str]]:
    for op in SHAPE_FIELDS:
        for dtype in _dtypes(gpu, matmul=op in MATMUL_OPS):
            yield op, dtype


def _dtypes(gpu: Gpu, *, matmul: bool) -> Iterator[str]:
    """Formats of an operator on a GPU; tf32 exists only where matrices are multiplied."""
    yield "fp32"
    if matmul and "tf32" in gpu.peak_flops:
        yield "tf32"
    if "fp16" in gpu.peak_flops:
        yield "fp16"
    if "bf16_tensor" in gpu.peak_flops:
        yield "bf16"
