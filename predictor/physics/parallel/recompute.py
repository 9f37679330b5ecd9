"""Activation checkpointing: which operators of the forward pass run twice.

Full: every repeated layer (Chen et al., arXiv 1604.06174); a network without repeated layers runs
all but its loss again. Selective: the core of attention alone, from the scores to the weighted
values (Korthikanti et al., arXiv 2205.05198); other modules that Megatron-LM can name (activations
and norms of a mixture) cost next to nothing to compute again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from ...graphs.operator import Graph, Kind, Operator
from ...graphs.parts import is_forward, parts_of
from ...job.training_job import TrainingJob

# Megatron-LM's name of what selective recomputation means unless other modules are named.
CORE = "core_attn"
NOT_AGAIN = frozenset({Kind.LOSS, Kind.EMBEDDING})


class Recompute(StrEnum):
    """What is computed again in the backward pass."""

    NOTHING = "nothing"
    ATTENTION = "attention"
    LAYERS = "layers"


def recompute_of(job: TrainingJob) -> Recompute:
    """What the software of a job computes again."""
    software = job.software
    asked = Recompute(software.recompute)
    core = CORE in (software.recompute_modules or CORE)
    return Recompute.NOTHING if asked is Recompute.ATTENTION and not core else asked


def again(graph: Graph, recompute: Recompute) -> frozenset[int]:
    """Positions in ``Graph.operators`` of what runs a second time."""
    if recompute is Recompute.LAYERS:
        first, end = parts_of(graph).body
        inside = range(first, end or len(graph.operators))
        return frozenset(i for i in inside if _repeats(graph.operators[i]))
    if recompute is Recompute.ATTENTION:
        return frozenset(_attention(graph.operators))
    return frozenset()


def _repeats(operator: Operator) -> bool:
    return is_forward(operator) and operator.kind not in NOT_AGAIN


def _attention(operators: Sequence[Operator]) -> Iterator[int]:
    """Fused attention, or all from one product of activations to the next."""
    inside = False
    for i, operator in enumerate(operators):
        if not is_forward(operator):
            continue
        if operator.kind is Kind.BATCHED_GEMM:
            inside = not inside
            yield i
        elif inside or operator.kind is Kind.ATTENTION:
            yield i
