"""Prices the step of a network from its trace: seconds, memory, power."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ....graphs.catalog import ModelEntry
from ....graphs.operator import Graph, Kind
from ....job.training_job import TrainingJob
from ....physics.memory.model import memory_of_graph
from ....physics.step import StepModel
from ....planning.energy import power_of
from ...trace.inputs import of_examples
from ...trace.mapping import mapped
from ...trace.step import FakeNetwork
from .candidates import Candidate
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
