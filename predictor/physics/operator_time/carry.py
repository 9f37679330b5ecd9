"""Finds the constants of a group on a GPU: its own, or carried over from where there are rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiles.gpus import Gpu

from ...graphs.operator import Kind
from .fit import POOLED, FittedOperators
from .groups import HEAVY, Group
from .samples import architecture_of
from .work import Floats

Table = Mapping[tuple[str, str], FittedOperators]

EFFICIENCY = 0  # index of the constant in every law
MISALIGNMENT = 7
# No table has a Kepler GPU. Libraries reach half the share of its peak that they reach on later
# ones: 29 % in ResNet-50 against 61 to 66 % on P100 and V100 (Gavel, tensorflow/benchmarks).
KEPLER = -0.65
LOAD_COST = 1


@dataclass(frozen=True, slots=True)
class Source:
    """Constants (p,) for one group on one GPU, and in words where they come from."""

    constants: Floats
    evidence: str


def resolve(table: Table, group: Group, gpu: Gpu) -> Source:
    """Own rows first, then the same group on other GPUs, then its stand-ins, then the prior."""
    architecture = architecture_of(gpu)
    for candidate in (group, *group.stand_ins):
        own = table.get((candidate.name, architecture))
        if own is not None and (candidate == group or group.kind not in HEAVY):
            return Source(own.constants, _own(group, candidate, own, gpu))
        pooled = own or table.get((candidate.name, POOLED))
        if pooled is not None:
            constants = _rescaled(table, group, candidate, pooled, architecture)
            if gpu.architecture == "kepler":
                constants[EFFICIENCY] += KEPLER
            return Source(constants, _carried(group, candidate, pooled))
    return Source(group.law.prior, f"{group.name}: no measurement anywhere, roofline with priors")


def _rescaled(
    table: Table, group: Group, candidate: Group, pooled: FittedOperators, architecture: str
) -> Floats:
    """Tensor and matrix work follows the ratio of GEMM efficiencies at its own format."""
    constants = pooled.constants.copy()
    target = table.get((Group(Kind.GEMM, group.part).name, architecture))
    origin = table.get((Group(Kind.GEMM, candidate.part).name, pooled.architecture))
    if group.kind not in HEAVY or target is None or origin is None or group.kind is Kind.GEMM:
        return constants
    constants[EFFICIENCY] += _gemm_efficiency(target) - _gemm_efficiency(origin)
    if group.kind in (Kind.CONV, Kind.BATCHED_GEMM):
        constants[MISALIGNMENT] = target.constants[MISALIGNMENT]
    return constants


def _gemm_efficiency(gemm: FittedOperators) -> float:
    """Logarithm of the share of peak a large GEMM reaches."""
    loads = np.exp(gemm.constants[LOAD_COST])
    return float(gemm.constants[EFFICIENCY] - np.log1p(loads))


def _own(group: Group, candidate: Group, fitted: FittedOperators, gpu: Gpu) -> str:
    rows = f"{fitted.rows} rows of {', '.join(fitted.gpus)}"
    measured = "own table" if gpu.name in fitted.gpus else f"table of {fitted.architecture}"
    stand_in = "" if candidate == group else f" of {candidate.name}"
    return f"{group.name}: {measured}{stand_in}, {rows}"


def _carried(group: Group, candidate: Group, fitted: FittedOperators) -> str:
    stand_in = "" if candidate == group else f" of {candidate.name}"
    gpus = ", ".join(fitted.gpus)
    return f"{group.name}: carried over{stand_in} from {gpus} ({fitted.rows} rows)"
