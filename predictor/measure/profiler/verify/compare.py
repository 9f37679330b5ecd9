"""Predicted steps beside measured ones, and what is left between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median

import torch

from ....graphs.catalog import ModelEntry
from ....graphs.operator import Graph, Kind
from ....job.precision import Precision
from ....job.training_job import TrainingJob
from ....physics.memory.model import memory_of_graph
from ....physics.step import StepModel
from ....planning.energy import power_of
from ...trace.inputs import of_examples
from ...trace.mapping import mapped
from ...trace.step import FakeNetwork
from .candidates import Candidate
from .measure import Measured
from .steps import StepRun


def graph_of(candidate: Candidate) -> Graph:
    """The operators of one step of a candidate, traced on tensors without data."""
    network = FakeNetwork(candidate.build())
    examples = of_examples(candidate.batch(torch.device("cpu")), None)
    calls = network.step(examples.inputs, lambda loss: loss, examples.batch_size, 0)
    weights = network.weights
    return Graph(
        operators=mapped(calls).operators,
        parameters=weights.parameters,
        trainable_parameters=weights.trainable,
        parameter_tensors=weights.tensors,
        sparse_parameters=weights.sparse,
        input_elements=0.0,
    )


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
    entry = _entry(candidate, graph)
    found = steps.price_graph(job, entry, graph)
    busy = min(1.0, (found.compute_s + found.optimizer_s) / found.step_s)
    return PricedStep(
        step_s=found.step_s,
        peak_bytes=memory_of_graph(job, entry, graph).allocated_bytes,
        power_w=power_of(job.hardware).at(busy) if job.hardware.tdp_w else None,
    )


def _entry(candidate: Candidate, graph: Graph) -> ModelEntry:
    recurrent = any(o.kind is Kind.RNN for o in graph.operators)
    return ModelEntry(
        name=candidate.name,
        family="traced",
        group="rnn" if recurrent else "other",
        aliases=(),
        architecture={},
        image_size=None,
        seq_len=None,
        optimizer=candidate.optimizer,
        dataset_size=None,
        units={},
        parameters=graph.parameters,
        forward_gflops=None,
        source="traced",
    )


# Half the steps lie within this share of the median on a machine that does nothing else.
STEADY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A predicted step, and the measured one; ``before_s`` without any row of the device."""

    run: StepRun
    predicted: PricedStep
    before_s: float | None
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Pair):
    """One network in one precision: a step from tables alone, and as it was measured.

    ``one_run_s`` is the prediction times the factor that the FIRST other network shows in the same
    precision, ``calibrated_s`` times the median factor of ALL others; ``before_s`` is what the
    shipped tables say without any row of the device, None for a CPU. ``measured`` is at the usual
    pace of the tables, its ``pace`` what the device ran at over that: 0.9 is a tenth slower.
    """

    one_run_s: float
    calibrated_s: float

    @property
    def network(self) -> str:
        """Its name."""
        return self.run.candidate.name

    @property
    def aside(self) -> bool:
        """Whether it was no guide to the predictor."""
        return self.run.candidate.aside

    @property
    def measured_s(self) -> float:
        """Seconds of a step."""
        return self.measured.timing.time_s

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted.step_s / self.measured_s - 1.0

    @property
    def clock_error(self) -> float:
        """As ``error``, against the time that the clock showed, whatever the pace was."""
        return self.predicted.step_s * self.measured.pace / self.measured_s - 1.0

    @property
    def before_error(self) -> float | None:
        """As ``error``, before any row of the device."""
        return None if self.before_s is None else self.before_s / self.measured_s - 1.0

    @property
    def one_run_error(self) -> float:
        """As ``error``, with the factor of one other network."""
        return self.one_run_s / self.measured_s - 1.0

    @property
    def calibrated_error(self) -> float:
        """As ``error``, with the factor of all others."""
        return self.calibrated_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float | None:
        """Of the memory that torch's allocator gave out; None where it was not measured."""
        peak = self.measured.peak_bytes
        return self.predicted.peak_bytes / peak - 1.0 if peak else None

    @property
    def energy_error(self) -> float | None:
        """Of the energy of a step by the power that NVML saw; None where it was not measured."""
        watts, predicted = self.measured.power_w, self.predicted.power_w
        if not watts or predicted is None:
            return None
        return self.predicted.step_s * predicted / (self.measured_s * watts) - 1.0


# What errors are of, in the order of what is known by then.
STAGES: tuple[tuple[str, Callable[[Comparison], float | None]], ...] = (
    ("before any row of the device", attrgetter("before_error")),
    ("from its tables", attrgetter("error")),
    ("after one run", attrgetter("one_run_error")),
    ("after all other runs", attrgetter("calibrated_error")),
    ("from its tables, by the clock", attrgetter("clock_error")),
    ("memory", attrgetter("memory_error")),
    ("energy", attrgetter("energy_error")),
)
ERROR, CALIBRATED, BY_THE_CLOCK = (STAGES[at][1] for at in (1, 3, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
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

    def summary(
        self, error: Callable[[Comparison], float | None] = ERROR, *, aside: bool | None = None
    ) -> Summary | None:
        """Errors of all networks, or of those that were a guide or not; None where none is."""
        chosen = (error(c) for c in self.comparisons if aside is None or c.aside is aside)
        return summary_of([found for found in chosen if found is not None])

    @property
    def speed_ups(self) -> tuple[SpeedUp, ...]:
        """Of every network that was measured in FP32 too."""
        plain = {c.network: c for c in self.comparisons if c.run.precision is Precision.FP32}
        return tuple(_speed_ups(self.comparisons, plain))

    @property
    def unsteady(self) -> tuple[Comparison, ...]:
        """Those whose measured steps disagree."""
        return tuple(c for c in self.comparisons if c.measured.timing.spread > STEADY)


def summary_of(errors: Sequence[float]) -> Summary | None:
    """Of signed errors; None where there are none."""
    sizes = [abs(error) for error in errors]
    if not sizes:
        return None
    return Summary(steps=len(sizes), mean=fmean(sizes), median=median(sizes))


def _speed_ups(
    comparisons: Sequence[Comparison], plain: dict[str, Comparison]
) -> Iterator[SpeedUp]:
    for c in comparisons:
        base = plain.get(c.network)
        if base is not None and c is not base:
            yield SpeedUp(
                network=c.network,
                precision=c.run.name,
                predicted=base.predicted.step_s / c.predicted.step_s,
                measured=base.measured_s / c.measured_s,
            )


def compared(pairs: Sequence[Pair]) -> tuple[Comparison, ...]:
    """Each pair with the factors of other networks, leaving its own out."""
    return tuple(_compared(pairs, pair) for pair in pairs)


def _compared(pairs: Sequence[Pair], own: Pair) -> Comparison:
    factors = [
        p.measured.timing.time_s / p.predicted.step_s
        for p in pairs
        if p.run.name == own.run.name
        and p.run.candidate.name != own.run.candidate.name
        and not p.run.candidate.aside  # networks set aside teach nothing
    ]
    first = factors[0] if factors else 1.0
    middle = math.exp(median(map(math.log, factors))) if factors else 1.0
    return Comparison(
        run=own.run,
        predicted=own.predicted,
        before_s=own.before_s,
        one_run_s=own.predicted.step_s * first,
        calibrated_s=own.predicted.step_s * middle,
        measured=own.measured,
    )
