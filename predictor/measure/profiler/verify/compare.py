"""Profiled tables -> time laws -> predicted steps beside measured ones, on one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from threading import Event

import numpy as np
import torch

from profiles import joined, roots
from profiles.gpus import CPU, find_gpu, gpus
from profiles.tables import OperatorTable, operators, take, usual_pace

from ....errors import ProfileError
from ....graphs.catalog import ModelEntry
from ....graphs.operator import Graph, Kind
from ....job.precision import Precision
from ....job.training_job import TrainingJob
from ....physics.collectives import CollectiveTimes
from ....physics.memory.model import memory_of_graph
from ....physics.operator_time import OperatorTimes
from ....physics.step import StepModel
from ....planning.cost import power_of
from ...trace.mapping import mapped
from ...trace.request import of_examples
from ...trace.step import FakeNetwork
from ..device import named, opened
from ..directory import Directory
from .networks import CANDIDATES, NETWORKS, Candidate
from .steps import Measured, StepRun, read, runs_for, train

Progress = Callable[[str, float], None]
# Half the steps lie within this share of the median on a machine that does nothing else.
STEADY = 0.2
# What errors are of: step times, in the order of what is known by then, memory, and energy.
BEFORE, TABLES = "before any row of the device", "from its tables"
ONE_RUN, ALL_RUNS = "after one run", "after all other runs"
BY_THE_CLOCK, MEMORY, ENERGY = "from its tables, by the clock", "memory", "energy"
STAGES = (BEFORE, TABLES, ONE_RUN, ALL_RUNS, BY_THE_CLOCK, MEMORY, ENERGY)


def trained(
    directory: Path,
    device: str,
    *,
    networks: Sequence[Candidate] | None = None,
    minutes: float = float("inf"),
    stop: Event | None = None,
    progress: Progress = lambda stage, share: None,
) -> tuple[str, int]:
    """Train networks that have no row in ``directory`` yet: the device, and how many are left.

    ``device`` is as torch calls it (cpu, cuda:0).
    """
    where = named(device)
    chosen = _networks(where.type) if networks is None else networks
    with roots.also(directory), opened(where, "") as found:
        name, pace = found.sheet.device, None
        if where.type == CPU:  # relative to what was usual when the tables were measured
            place = Directory(directory)
            pace = place.pace(name).relative_to(usual_pace(place.notes(name)))
        runs = runs_for(where, chosen)
        left = train(
            directory, found, runs, pace=pace, minutes=minutes, stop=stop, progress=progress
        )
    return name, left


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
        networks = _networks(gpu.kind) if networks is None else networks
        progress("fitting the tables", 0.0)
        own = operators(directory)
        if not (own.gpu == gpu.name).any():
            raise ProfileError(f"{directory} has no operator row of {name}: profile it for longer")
        before = None
        if gpu.kind != CPU:
            own = joined.operators()
            before = _model(take(own, np.flatnonzero(own.gpu != gpu.name)), name)
        steps = _model(own, name)
        found = read(directory, gpu.name, networks)
        graphs = {c: graph_of(c) for c in dict.fromkeys(run.candidate for run in found)}
        pairs = []
        for run, measured in found.items():
            graph = graphs[run.candidate]
            predicted = priced(steps, run, graph, name)
            before_s = None if before is None else priced(before, run, graph, name).step_s
            pairs.append(
                Comparison(run=run, predicted=predicted, before_s=before_s, measured=measured)
            )
    return Verification(device=name, comparisons=compared(pairs), left=left)


def _networks(kind: str) -> Sequence[Candidate]:
    """Networks in usual sizes for a GPU, small ones for a CPU."""
    return CANDIDATES if kind == CPU else NETWORKS


def _model(table: OperatorTable, name: str) -> StepModel:
    known = {name: find_gpu(name)} if find_gpu(name).kind == CPU else gpus()
    times = OperatorTimes.fit(table, known)
    return StepModel(times, CollectiveTimes.fit(joined.collectives(), gpus()))


def graph_of(candidate: Candidate) -> Graph:
    """The operators of one step of a candidate, traced on tensors without data."""
    with torch.device("meta"):
        module = candidate.build()
    network = FakeNetwork(module)
    inputs, batch = of_examples(candidate.batch(torch.device("cpu")), None)
    calls = network.step(inputs, lambda loss: loss, batch, 0)
    operators = mapped(calls).operators
    return Graph(operators, input_elements=0.0, synchronous=False, **network.weights)


@dataclass(frozen=True, slots=True)
class PricedStep:
    """One step: seconds, what torch's allocator gives out at most, watts (None where unknown)."""

    step_s: float
    peak_bytes: float
    power_w: float | None


def priced(steps: StepModel, run: StepRun, graph: Graph, device: str) -> PricedStep:
    """The physical step of a run on a device of the tables."""
    candidate = run.candidate
    job = TrainingJob(
        model=candidate.name,
        precision=run.precision,
        gpu=device,
        batch_size=candidate.batch_size,
        optimizer=candidate.optimizer,
        options=(("compile", "on"),) if run.compiled else (),
    )
    recurrent = any(o.kind is Kind.RNN for o in graph.operators)
    entry = ModelEntry(
        name=candidate.name,
        family="traced",
        group="rnn" if recurrent else "other",
        architecture={},
        optimizer=candidate.optimizer,
        parameters=graph.parameters,
        source="traced",
    )
    found = steps.price_graph(job, entry, graph)
    busy = min(1.0, (found.compute_s + found.optimizer_s) / found.step_s)
    return PricedStep(
        step_s=found.step_s,
        peak_bytes=memory_of_graph(job, entry, graph).allocated_bytes,
        power_w=power_of(job.hardware).at(busy) if job.hardware.tdp_w else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One network in one precision: a step from tables alone, and as it was measured.

    ``before_s`` is what the shipped tables say without any row of the device, None for a CPU.
    ``measured`` is at the usual pace of the tables, its ``pace`` what the device ran at over that:
    0.9 is a tenth slower. ``others`` is measured over predicted of other networks in the same
    precision: the FIRST teaches the factor of ``ONE_RUN``, the median of ALL that of ``ALL_RUNS``.
    """

    run: StepRun
    predicted: PricedStep
    before_s: float | None
    measured: Measured
    others: tuple[float, ...] = ()

    @property
    def network(self) -> str:
        """Its name."""
        return self.run.candidate.name

    @property
    def measured_s(self) -> float:
        """Seconds of a step."""
        return self.measured.timing.time_s

    @property
    def errors(self) -> Mapping[str, float]:
        """Predicted over measured, less one, by stage, where both are known."""
        measured, predicted, step_s = self.measured, self.predicted, self.predicted.step_s
        factors = self.others or (1.0,)
        seconds = {
            BEFORE: self.before_s,
            TABLES: step_s,
            ONE_RUN: step_s * factors[0],
            ALL_RUNS: step_s * math.exp(median(map(math.log, factors))),
            BY_THE_CLOCK: step_s * measured.pace,
        }
        found = {name: s / self.measured_s - 1.0 for name, s in seconds.items() if s is not None}
        if measured.peak_bytes:
            found[MEMORY] = predicted.peak_bytes / measured.peak_bytes - 1.0
        if measured.power_w and predicted.power_w is not None:
            joules = self.measured_s * measured.power_w
            found[ENERGY] = step_s * predicted.power_w / joules - 1.0
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Mean and median of absolute errors over ``steps`` comparisons."""

    steps: int
    mean: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """How many times faster than FP32 a network is in a precision."""

    network: str
    precision: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Every comparison on one device; ``left`` networks are still to be trained."""

    device: str
    comparisons: tuple[Comparison, ...]
    left: int = 0

    def summary(self, stage: str = TABLES, *, aside: bool | None = None) -> ErrorSummary | None:
        """Errors of all networks, or of those that were a guide or not; None where none is."""
        chosen = (
            c.errors.get(stage)
            for c in self.comparisons
            if aside is None or c.run.candidate.aside is aside
        )
        return summary_of([found for found in chosen if found is not None])

    @property
    def speed_ups(self) -> tuple[SpeedUp, ...]:
        """Of every network that was measured in FP32 too."""
        plain = {c.network: c for c in self.comparisons if c.run.precision is Precision.FP32}
        return tuple(
            SpeedUp(
                network=c.network,
                precision=c.run.name,
                predicted=plain[c.network].predicted.step_s / c.predicted.step_s,
                measured=plain[c.network].measured_s / c.measured_s,
            )
            for c in self.comparisons
            if plain.get(c.network, c) is not c
        )

    @property
    def unsteady(self) -> tuple[Comparison, ...]:
        """Those whose measured steps disagree."""
        return tuple(c for c in self.comparisons if c.measured.timing.spread > STEADY)


def summary_of(errors: Sequence[float]) -> ErrorSummary | None:
    """Of signed errors; None where there are none."""
    sizes = [abs(error) for error in errors]
    if not sizes:
        return None
    return ErrorSummary(steps=len(sizes), mean=fmean(sizes), median=median(sizes))


def compared(pairs: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Each with the factors of other networks, leaving its own out."""
    return tuple(
        replace(
            own,
            others=tuple(
                p.measured_s / p.predicted.step_s
                for p in pairs
                if p.run.name == own.run.name
                and p.network != own.network
                and not p.run.candidate.aside  # networks set aside teach nothing
            ),
        )
        for own in pairs
    )
