"""Bytes of the activations of one micro-step, by where in the network they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...graphs.catalog import Pairs, graph_of
from ...graphs.operator import Graph, Workload
from ..job_graph import Storage
from ..parallel.stages import Parts, parts_of, repeated
from .saved import Kept, kept_by


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """What the forward pass drops and computes again: whole layers, or attention scores only."""

    layers: bool = False
    scores: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Activations of the operators before, in or behind the repeated layers, in bytes.

    ``kept`` stands from the forward to the backward pass; ``peak`` is ``kept`` plus the most that
    its backward holds on top at one moment.
    """

    kept: float = 0.0
    peak: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """One micro-batch through a network: activations, and weights by place, in elements.

    ``matrix_weights`` are all that matrix products multiply.
    """

    start: Part
    body: Part
    end: Part
    parts: Parts
    parameters: int
    trainable: int
    sparse: int
    matrix_weights: float


@lru_cache(maxsize=4096)
def account_of(
    name: str,
    changes: Pairs,
    work: Workload,
    storage: Storage,
    checkpointing: Checkpointing,
    sequence_parallel: bool,
) -> Account:
    """The account of a catalog entry; raises GraphError where it has no graph."""
    shares = work.tensor_parallel if sequence_parallel else 1
    return account_of_graph(graph_of(name, changes, work), storage, checkpointing, shares)


def account_of_graph(
    graph: Graph, storage: Storage, checkpointing: Checkpointing, shares: int = 1
) -> Account:
    """The account of any graph; what sequence parallelism divides is divided by ``shares``."""
    kept = kept_by(graph, storage)
    parts = parts_of(graph)
    first, last = repeated([k.operator for k in kept])
    items = [_Item.of(k, shares, checkpointing.scores) for k in kept]
    start, body, end = items[:first], items[first:last], items[last:]
    layers = parts.layers
    held, behind = _part(body, layers), _part(end)
    if checkpointing.layers and layers == 1:
        start, held, behind = [], Part(), _rooted(items)
    elif checkpointing.layers:  # keeps the inputs, and in its backward one whole layer
        one = [_Item(i.bytes, i.transient, i.output, max(1.0, i.count / layers)) for i in body]
        boundary = layers * body[-1].output
        held = Part(boundary, boundary + _part(one).peak)
    return Account(
        start=_part(start),
        body=held,
        end=behind,
        parts=parts,
        parameters=graph.parameters,
        trainable=graph.trainable_parameters,
        sparse=graph.sparse_parameters,
        matrix_weights=sum(k.weights * k.operator.count for k in kept),
    )


@dataclass(slots=True)
class _Item:
    """One forward operator: bytes kept and needed by one instance, and how many instances."""

    bytes: float
    transient: float
    output: float
    count: float

    @classmethod
    def of(cls, kept: Kept, shares: int, drop_scores: bool) -> _Item:
        share = shares if kept.split else 1
        held = kept.bytes - (kept.scores if drop_scores else 0.0)
        return cls(held / share, kept.transient, kept.output / share, kept.operator.count)


def _part(items: Sequence[_Item], layers: int = 1) -> Part:
    """Walks the backward pass: what is still kept, and what the operator at hand needs."""
    kept = total = sum(i.bytes * i.count for i in items)
    peak = total
    for item in reversed(items):
        peak = max(peak, kept + item.transient)
        kept -= item.bytes * max(1.0, item.count / layers)
    return Part(total, peak)


def _rooted(items: Sequence[_Item]) -> Part:
    """Checkpoints every sqrt(n) operators of a network without equal layers (arXiv 1604.06174).

    Of operators that stand for several alike, one is computed again at a time.
    """
    blocks = max(1, round(len(items) ** 0.5))
    size = -(-len(items) // blocks)
    runs = [items[n : n + size] for n in range(0, len(items), size)]
    boundary = sum(run[-1].output * run[-1].count for run in runs[:-1])
    one = [[replace(i, count=i.count / max(j.count for j in run)) for i in run] for run in runs]
    return Part(boundary, boundary + max(_part(run).peak for run in one))
