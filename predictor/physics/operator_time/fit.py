"""Fits the constants of every group: pooled over architectures first, then each its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .groups import OperatorGroup, groups, slots
from .laws import Law
from .neighbours import Neighbours
from .samples import Samples
from .solve import robust_fit
from .work import Floats

POOLED = "*"
MIN_ROWS = 12
POOLED_ROWS = 240  # of each architecture
ARCHITECTURE_ROWS = 700
SEED = 7
# Cards below this power (P4, T4, L4) cannot hold their boost clock, so others learn nothing from
# their efficiency; libraries for GPUs before tensor cores are of an older make.
MIN_TDP_W = 100.0
FIRST_WITH_TENSOR_CORES = 70
# How far an architecture may move from the pooled constants, relative to the law's prior.
ARCHITECTURE_DEVIATION = 0.6


@dataclass(frozen=True, slots=True)
class FittedOperators:
    """Constants (p,) of one group on one architecture, and what they were fitted on.

    ``near`` corrects them by rows of like shape; only CPUs have it.
    """

    group: str
    architecture: str
    constants: Floats
    rows: int
    gpus: tuple[str, ...]
    sources: tuple[str, ...]
    near: Neighbours | None = None

    @classmethod
    def of(
        cls,
        group: str,
        architecture: str,
        constants: Floats,
        samples: Samples,
        near: Neighbours | None = None,
    ) -> FittedOperators:
        """Constants with the rows that they were fitted on."""
        gpus = tuple(str(name) for name in np.unique(samples.gpu))
        sources = tuple(str(name) for name in np.unique(samples.source))
        return cls(group, architecture, constants, len(samples), gpus, sources, near)


def fit_groups(samples: Samples) -> tuple[FittedOperators, ...]:
    """Pooled and per-architecture constants of every group that has rows; GPUs only."""
    slot = slots(samples.work)
    found: list[FittedOperators] = []
    for group in groups():
        index = np.flatnonzero(slot == group.slot)
        if len(index) >= MIN_ROWS:
            found.extend(_fit_group(group, samples.take(index)))
    return tuple(found)


def _fit_group(group: OperatorGroup, samples: Samples) -> Iterator[FittedOperators]:
    law, random = group.law, np.random.default_rng(SEED)
    names = np.unique(samples.architecture)
    rows = [np.flatnonzero(samples.architecture == name) for name in names]
    typical = _typical(samples)
    balanced = np.concatenate([thin(r[typical[r]], POOLED_ROWS, random) for r in rows])
    pooled = _constants(law, samples.take(balanced), law.prior, law.deviation)
    yield FittedOperators.of(group.name, POOLED, pooled, samples.take(np.flatnonzero(typical)))
    for name, index in zip(names, rows, strict=True):
        if len(index) < MIN_ROWS:
            continue
        own = samples.take(thin(index, ARCHITECTURE_ROWS, random))
        deviation = law.deviation * ARCHITECTURE_DEVIATION
        constants = _constants(law, own, pooled, deviation)
        yield FittedOperators.of(group.name, str(name), constants, samples.take(index))


def _typical(samples: Samples) -> NDArray[np.bool_]:
    """Rows to pool: of NVIDIA's GPUs not held back by power, of today's libraries if possible."""
    nvidia = np.char.startswith(samples.architecture, "sm")
    generation = np.array([int(name.strip("smgfxwh")) for name in samples.architecture])
    tensor_cores = nvidia & (generation >= FIRST_WITH_TENSOR_CORES)
    powerful = nvidia & (samples.tdp_w >= MIN_TDP_W)
    for choice in (tensor_cores & powerful, powerful):
        if choice.sum() >= MIN_ROWS:
            return np.asarray(choice)
    return np.ones(len(samples), dtype=bool)


def _constants(law: Law, samples: Samples, prior: Floats, deviation: Floats) -> Floats:
    measured = np.log(samples.seconds)

    def residuals(x: Floats) -> Floats:
        return np.asarray(np.log(law.formula(x[None, :], samples.work)) - measured)

    return robust_fit(residuals, prior, deviation)


def thin(index: NDArray[np.intp], limit: int, random: np.random.Generator) -> NDArray[np.intp]:
    """At most ``limit`` rows of an index (n,), in its order."""
    return index if len(index) <= limit else np.sort(random.choice(index, limit, replace=False))
