"""Prices the step of a small network from its trace."""

from __future__ import annotations

import torch

from ....graphs.catalog import ModelEntry
from ....graphs.operator import Graph, Kind
from ....job.precision import Precision
from ....job.training_job import TrainingJob
from ....physics.step import StepModel, StepTime
from ...trace.inputs import of_examples
from ...trace.mapping import mapped
from ...trace.step import FakeNetwork
from .candidates import Candidate


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


def priced(
    steps: StepModel, candidate: Candidate, graph: Graph, precision: Precision, device: str
) -> StepTime:
    """The physical step time of a candidate on a device of the tables."""
    job = TrainingJob(
        model=candidate.name,
        precision=precision,
        gpu=device,
        batch_size=candidate.batch_size,
        optimizer=candidate.optimizer,
    )
    return steps.price_graph(job, _entry(candidate, graph), graph)


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
