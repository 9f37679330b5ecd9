"""Profiled tables -> time laws -> predicted steps -> measured steps, on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import numpy as np

from profiles import joined, roots
from profiles.gpus import CPU, find_gpu, gpus
from profiles.tables import OperatorTable, operators, take
from profiles.usual_pace import usual_pace

from ....errors import ProfileError
from ....physics.collectives import CollectiveTimes
from ....physics.operator_time import OperatorTimes
from ....physics.step import StepModel
from ..device import named, opened
from ..directory import Directory
from ..timing import Pace
from .candidates import CANDIDATES, NETWORKS, Candidate
from .compare import Pair, Verification, compared, graph_of, priced
from .steps import networks_for, read, runs_for, train

Progress = Callable[[str, float], None]


def verify(
    directory: Path,
    device: str,
    *,
    networks: Sequence[Candidate] | None = None,
    minutes: float = float("inf"),
    stop: Event | None = None,
    progress: Progress = lambda stage, share: None,
) -> Verification:
    """Train networks that have no row in ``directory`` yet, and predict all that have.

    ``device`` is as torch calls it (cpu, cuda:0). No step of these networks is in any table. A CPU
    is priced by its own tables alone, a GPU by the shipped ones too. Raises ProfileError where
    there are no operator rows, ProfileDataError where the tables cannot be read.
    """
    where = named(device)
    chosen = networks_for(where) if networks is None else networks
    with roots.also(directory), opened(where, "") as found:
        name = found.sheet.device
        pace = _usual(directory, name) if where.type == "cpu" else None
        runs = runs_for(where, chosen)
        left = train(
            directory, found, runs, pace=pace, minutes=minutes, stop=stop, progress=progress
        )
    return compare(directory, name, networks=chosen, left=left, progress=progress)


def compare(
    directory: Path,
    name: str,
    *,
    networks: Sequence[Candidate] | None = None,
    left: int = 0,
    progress: Progress = lambda stage, share: None,
) -> Verification:
    """Predict every step that ``directory`` has of a device; the device itself is not needed."""
    with roots.also(directory):
        gpu = find_gpu(name)
        if networks is None:
            networks = CANDIDATES if gpu.kind == CPU else NETWORKS
        progress("fitting the tables", 0.0)
        own = operators(directory)
        if not (own.gpu == gpu.name).any():
            raise ProfileError(f"{directory} has no operator row of {name}: profile it for longer")
        shipped = None if gpu.kind == CPU else joined.operators()
        steps = _model(own if shipped is None else shipped, name)
        before = None
        if shipped is not None:
            before = _model(take(shipped, np.flatnonzero(shipped.gpu != gpu.name)), name)
        rows = list(read(directory, gpu.name, networks))
        graphs = {c.name: graph_of(c) for c in networks if any(c is r.run.candidate for r in rows)}
        pairs = [
            Pair(
                run=row.run,
                predicted=priced(steps, row.run, graphs[row.run.candidate.name], name),
                before_s=None
                if before is None
                else priced(before, row.run, graphs[row.run.candidate.name], name).step_s,
                measured=row.found,
            )
            for row in rows
        ]
    return Verification(device=name, comparisons=compared(pairs), left=left)


def _usual(directory: Path, name: str) -> Pace:
    """Paces relative to what was usual when the tables were measured."""
    place = Directory(directory)
    return place.pace(name).relative_to(usual_pace(place.notes(name)))


def _model(table: OperatorTable, name: str) -> StepModel:
    known = {name: find_gpu(name)} if find_gpu(name).kind == CPU else gpus()
    times = OperatorTimes.fit(table, known)
    return StepModel(times, CollectiveTimes.fit(joined.collectives(), gpus()))
