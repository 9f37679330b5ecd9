"""How far the time laws are off: on shapes and on architectures they have not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import CPU, Gpu
from profiles.tables import OperatorTable

from .fit import fit_groups
from .groups import groups, slots
from .model import OperatorTimes, price
from .samples import Samples, samples_of
from .work import Floats

HELD_OUT_SHAPES = 5  # every fifth shape
MIN_ROWS = 10


@dataclass(frozen=True, slots=True)
class OperatorError:
    """Relative error |predicted / measured - 1| of one kind, GPU and format on unseen rows."""

    test: str
    group: str
    gpu: str
    rows: int
    mean: float
    median: float
    bias: float


@dataclass(frozen=True, slots=True)
class OperatorEvaluation:
    """Errors on held-out shapes, and on each architecture without any row of its own."""

    held_out_shapes: tuple[OperatorError, ...]
    held_out_architectures: tuple[OperatorError, ...]


def evaluate_operator_times(
    table: OperatorTable, gpus: Mapping[str, Gpu], *, architectures: tuple[str, ...] = ()
) -> OperatorEvaluation:
    """Refit without every fifth shape, then without each of ``architectures`` (default: all)."""
    samples = samples_of(table, {name: gpu for name, gpu in gpus.items() if gpu.kind != CPU})
    unseen = ((samples.shape * 2654435761 % 2**32) >> 7) % HELD_OUT_SHAPES == 0  # of their hash
    shapes = tuple(errors_on("shape", samples, unseen, gpus))
    names = architectures or tuple(str(a) for a in np.unique(samples.architecture))
    left_out = tuple(
        error
        for name in names
        for error in errors_on(name, samples, samples.architecture == name, gpus)
    )
    return OperatorEvaluation(shapes, left_out)


def errors_on(
    test: str, samples: Samples, unseen: NDArray[np.bool_], gpus: Mapping[str, Gpu]
) -> Iterator[OperatorError]:
    """Errors of each kind of operator on each GPU, in the rows that are ``unseen`` (n,)."""
    model = OperatorTimes(fit_groups(samples.take(np.flatnonzero(~unseen))))
    held = samples.take(np.flatnonzero(unseen))
    predicted = predict(model, held, gpus)
    slot = slots(held.work)
    for group in groups():
        for gpu in np.unique(held.gpu[slot == group.slot]):
            rows = (slot == group.slot) & (held.gpu == gpu)
            if rows.sum() < MIN_ROWS:
                continue
            error = predicted[rows] / held.seconds[rows] - 1.0
            yield OperatorError(
                test=test,
                group=group.name,
                gpu=str(gpu),
                rows=int(rows.sum()),
                mean=float(np.abs(error).mean()),
                median=float(np.median(np.abs(error))),
                bias=float(np.median(error)),
            )


def predict(model: OperatorTimes, samples: Samples, gpus: Mapping[str, Gpu]) -> Floats:
    """Seconds (n,) the model gives for samples of any GPUs."""
    seconds = np.zeros(len(samples))
    for name in np.unique(samples.gpu):
        index = np.flatnonzero(samples.gpu == name)
        constants = model.constants(gpus[str(name)])
        seconds[index] = price(constants, samples.work.take(index))
    return seconds
