"""Groups of operators that share constants, and where a group without rows takes them from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...graphs.operator import Direction, Kind
from .laws import ATTENTION, MEMORY, RECURRENT, Law
from .tiles import BATCHED_GEMM, CONV, GEMM
from .work import CLASSES, CORES, DIRECTION_CODE, FP4, FP8, HALF, KIND_CODE, KINDS, TF32, Ints, Work

HEAVY: dict[Kind, Law] = {
    Kind.GEMM: GEMM,
    Kind.BATCHED_GEMM: BATCHED_GEMM,
    Kind.CONV: CONV,
    Kind.ATTENTION: ATTENTION,
    Kind.RNN: RECURRENT,
}
WIDTHS = ("half", "fp32")
PASSES = ("forward", "backward")
SLOTS = 5  # per kind: five format classes, or two passes x two widths

# Formats whose kernels are built alike. Ordinary cores never stand in for tensor cores.
OTHER_CLASSES = {TF32: (HALF,), HALF: (TF32,), FP8: (HALF,), FP4: (FP8, HALF)}

# Kinds without rows of their own move their bytes like these.
PROXY = {
    **dict.fromkeys((Kind.INSTANCE_NORM, Kind.GROUP_NORM), Kind.BATCH_NORM),
    **dict.fromkeys((Kind.CAST, Kind.OPTIMIZER, Kind.EMBEDDING, Kind.POOL), Kind.ELEMENTWISE),
    **dict.fromkeys((Kind.LAYER_NORM, Kind.SOFTMAX), Kind.ELEMENTWISE),
    Kind.LOSS: Kind.SOFTMAX,
    Kind.BATCH_NORM: Kind.LAYER_NORM,
}


@dataclass(frozen=True, slots=True)
class OperatorGroup:
    """Operators of one kind and format class (heavy), or kind, pass and element width."""

    kind: Kind
    part: str
    width: str = ""

    @property
    def law(self) -> Law:
        """The time law of the group."""
        return HEAVY.get(self.kind, MEMORY)

    @property
    def name(self) -> str:
        """``conv/half`` or ``softmax/backward/fp32``."""
        return "/".join(filter(None, (self.kind.value, self.part, self.width)))

    @property
    def slot(self) -> int:
        """Position in arrays of constants over all groups."""
        if self.kind in HEAVY:
            return KIND_CODE[self.kind] * SLOTS + CLASSES.index(self.part)
        inner = PASSES.index(self.part) * 2 + WIDTHS.index(self.width)
        return KIND_CODE[self.kind] * SLOTS + inner

    @property
    def stand_ins(self) -> tuple[OperatorGroup, ...]:
        """Groups to take constants from when no GPU has rows of this one, best first."""
        if self.kind in HEAVY and self.part == CORES:
            return (OperatorGroup(self.kind, HALF),) if self.kind is Kind.ATTENTION else ()
        if self.kind in HEAVY:
            return tuple(OperatorGroup(self.kind, part) for part in OTHER_CLASSES[self.part])
        other_width = WIDTHS[1 - WIDTHS.index(self.width)]
        other_pass = PASSES[1 - PASSES.index(self.part)]
        same = (
            OperatorGroup(self.kind, self.part, other_width),
            OperatorGroup(self.kind, other_pass, self.width),
            OperatorGroup(self.kind, other_pass, other_width),
        )
        if self.kind not in PROXY:
            return same
        proxy = OperatorGroup(PROXY[self.kind], self.part, self.width)
        return (*same, proxy, *proxy.stand_ins)


def groups() -> tuple[OperatorGroup, ...]:
    """Every group, with or without rows."""
    heavy = [OperatorGroup(kind, part) for kind in HEAVY for part in CLASSES]
    light = [
        OperatorGroup(kind, part, width)
        for kind in KINDS
        if kind not in HEAVY
        for part in PASSES
        for width in WIDTHS
    ]
    return (*heavy, *light)


_IS_HEAVY = np.array([kind in HEAVY for kind in KINDS])
_FORWARD = DIRECTION_CODE[Direction.FORWARD]
_UPDATE = DIRECTION_CODE[Direction.UPDATE]


def slots(work: Work) -> Ints:
    """Slot of the group of each operator, (n,)."""
    backward = (work.direction != _FORWARD) & (work.direction != _UPDATE)
    inner = backward * 2 + (work.element_bytes > 2)
    inner = np.where(_IS_HEAVY[work.kind], work.format_class, inner)
    return np.asarray(work.kind * SLOTS + inner)
