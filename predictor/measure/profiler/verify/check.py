"""Profiled tables -> time laws -> predicted steps -> measured steps, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from profiles import joined, roots
from profiles.gpus import CPU, find_gpu, gpus
from profiles.tables import operators
from profiles.usual_pace import usual_pace

from ....errors import ProfileError
from ....job.precision import Precision
from ....physics.collectives import CollectiveTimes
from ....physics.operator_time import OperatorTimes
from ....physics.step import StepModel
from ..directory import Directory
from ..pace import Pace
from .candidates import CANDIDATES, Candidate
from .compare import Pair, Verification, compared
from .measure import measured, precisions
from .price import graph_of, priced

Progress = Callable[[str, float], None]


def verify(
    directory: Path,
    name: str,
    device: str,
    *,
    candidates: Sequence[Candidate] = CANDIDATES,
    progress: Progress = lambda stage, share: None,
) -> Verification:
    """Predict steps of small networks from the tables of ``directory``, then measure them.

    ``name`` is the device as ``directory`` calls it, ``device`` as torch does (cpu,
    cuda:0). No step of these networks is in any table. A CPU is priced by its own tables alone, a
    GPU by the shipped ones too. Raises ProfileError where there are no rows,
    ProfileDataError where the tables cannot be read.
    """
    with roots.also(directory):
        progress("fitting the tables", 0.0)
        steps = _model(directory, name)
        where = torch.device(device)
        pace = _usual(directory, name) if where.type == "cpu" else None
        pairs = list(_pairs(steps, name, where, pace, candidates, progress))
    return Verification(device=name, comparisons=compared(pairs))


def _usual(directory: Path, name: str) -> Pace:
    """Paces relative to what was usual when the tables were measured."""
    place = Directory(directory)
    return place.pace(name).relative_to(usual_pace(place.notes(name)))


def _model(directory: Path, name: str) -> StepModel:
    gpu = find_gpu(name)
    own = operators(directory)
    if not (own.gpu == gpu.name).any():
        raise ProfileError(f"{directory} has no operator row of {name}: profile it for longer")
    if gpu.kind == CPU:
        times = OperatorTimes.fit(own, {gpu.name: gpu})
    else:
        times = OperatorTimes.fit(joined.operators(), gpus())
    return StepModel(times, CollectiveTimes.fit(joined.collectives(), gpus()))


def _pairs(
    steps: StepModel,
    name: str,
    device: torch.device,
    pace: Pace | None,
    candidates: Sequence[Candidate],
    progress: Progress,
) -> Iterator[Pair]:
    for number, candidate in enumerate(candidates):
        progress(f"training {candidate.name}", number / len(candidates))
        graph = graph_of(candidate)
        for precision in precisions(device):
            predicted_s = priced(steps, candidate, graph, precision, name).step_s
            took = measured(candidate, precision, device, pace)
            yield Pair(
                network=candidate.name,
                precision=_word(precision),
                predicted_s=predicted_s,
                measured=took.timing,
                pace=took.pace,
                aside=candidate.aside,
            )


def _word(precision: Precision) -> str:
    return precision.value
