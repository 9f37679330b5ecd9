"""What a pipeline stage holds, what of it runs twice, and how long a step over all stages takes.

A graph is cut at its repeated layers. Recomputation (Chen et al., arXiv 1604.06174) runs every one
of them twice; a network without repeated layers runs all but its loss again. Selective
recomputation runs the core of attention alone, from the scores to the weighted values (Korthikanti
et al., arXiv 2205.05198); other modules that Megatron-LM can name (activations and norms of a
mixture) cost next to nothing to compute again.

1F1B and its interleaved form, Narayanan et al. arXiv 2104.04473: of a step of m micro-steps on p
stages a share (p-1)/m is idle, (p-1)/(m v) where each stage holds v chunks of layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...graphs.operator import Direction, Graph, Kind, Operator, is_forward
from ...job.frameworks import PYTORCH
from ...job.training_job import TrainingJob
from ..autocast import MATRIX, TypedOperator, weights_of
from ..operator_time.work import CLASSES, DIRECTION_CODE, KINDS, Floats, Work
from ..operator_time.work import CORES as CORES_CLASS

EMBEDDING, LAYER_NORM = Kind.EMBEDDING, Kind.LAYER_NORM


@dataclass(frozen=True, slots=True)
class Parts:
    """The operators of a graph before, in and behind its repeated layers.

    ``body`` is (first, end) in ``Graph.operators``, empty where nothing is repeated; ``layers`` is
    how often, of the kind of layer that holds the most weights, ``unit_weights`` are those of one
    layer of each kind. ``embedding_weights`` are those of trained tables, ``head_weights`` those of
    matrix products behind the layers, tied to the tables where ``tied``; all in elements.
    """

    body: tuple[int, int]
    layers: int
    unit_weights: float
    embedding_weights: float
    head_weights: float
    tied: bool
    weights: float

    def stage_weights(self, stage: int, share: float, stages: int) -> float:
        """Weights of a pipeline stage with a ``share`` of the layers.

        The embedding is on the first, the head on the last: a tied one is held on both.
        """
        if stages == 1:
            return self.weights
        ends = self.embedding_weights * (stage == 0) + self.head_weights * (stage == stages - 1)
        body = self.weights - self.embedding_weights - (0 if self.tied else self.head_weights)
        return body * share + ends


@lru_cache(maxsize=512)
def parts_of(graph: Graph) -> Parts:
    """The parts of a graph that was not cut into stages."""
    first, end = repeated(graph.operators)
    tables, weights = table_weights(graph), float(graph.parameters)
    if not end:
        return Parts((0, 0), 1, weights, tables, 0.0, tied=False, weights=weights)
    products = [o for o in graph.operators if o.kind in MATRIX and is_forward(o)]
    head = sum(weights_of(o) for o in graph.operators[end:] if is_forward(o))
    found = sum(weights_of(o) * o.count for o in products) + tables - head
    body = graph.operators[first:end]
    layers = _layer_weights(body)
    alike = min(o.count for o in body) > 1
    return Parts(
        body=(first, end),
        layers=int(max(layers, key=lambda n: n * layers[n])) if alike else 1,
        unit_weights=sum(layers.values()),
        embedding_weights=tables,
        head_weights=head,
        tied=abs(weights - found) < abs(weights - found - head),
        weights=weights,
    )


def repeated(operators: Sequence[Operator]) -> tuple[int, int]:
    """Where the repeated layers of a transformer begin and end; (0, 0) in other networks."""
    found = [i for i, o in enumerate(operators) if o.count > 1]
    if not found or not any(o.kind is LAYER_NORM for o in operators):
        return 0, 0
    return found[0], found[-1] + 1


def _layer_weights(body: Iterable[Operator]) -> dict[float, float]:
    """Weights of one layer by how often there is one; an operator is of the norm's before it."""
    found: dict[float, float] = {}
    times = 0.0
    for o in filter(is_forward, body):
        times = o.count if o.kind is LAYER_NORM or not times else times
        weights = weights_of(o) * o.count / times if o.kind in MATRIX else 0.0
        found[times] = found.get(times, 0.0) + weights
    return found


def table_weights(graph: Graph) -> float:
    """Weights of trained embedding tables: their gradient is written over the whole table."""
    return sum(
        o.writes - o.dims[0] * o.dims[1]
        for o in graph.operators
        if o.kind is EMBEDDING and o.direction is Direction.WEIGHT_GRADIENT
    )


def hidden_norms(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """One norm for each branch of a layer, as wide as the stream between layers.

    A branch with a norm in front and another behind its last product counts once.
    """
    forward = [o for o in operators if is_forward(o)]
    norms = [o for o in forward if o.kind is Kind.LAYER_NORM]
    wide = [o for o in norms if o.dims[1] == norms[0].dims[1]]
    behind = {
        id(o) for last, o in pairwise(forward) if o.kind is Kind.LAYER_NORM and last.kind in MATRIX
    }
    return tuple(o for o in wide if id(o) not in behind) or tuple(wide)


# Megatron-LM's name of what selective recomputation means unless other modules are named.
CORE = "core_attn"
NOT_AGAIN = frozenset({Kind.LOSS, Kind.EMBEDDING})
SUM = "add"


class Recompute(StrEnum):
    """What is computed again in the backward pass."""

    NOTHING = "nothing"
    ATTENTION = "attention"
    OPERATORS = "operators"
    LAYERS = "layers"


def recompute_of(job: TrainingJob) -> Recompute:
    """What the software of a job computes again."""
    software = job.software
    asked = Recompute(software.recompute)
    core = CORE in (software.recompute_modules or CORE)
    if asked is Recompute.ATTENTION and job.framework == PYTORCH and software.fused_attention:
        return Recompute.OPERATORS
    return Recompute.NOTHING if asked is Recompute.ATTENTION and not core else asked


def again(graph: Graph, recompute: Recompute, *, ends_early: bool = False) -> frozenset[int]:
    """Positions in ``Graph.operators`` of what runs a second time.

    Of operators, as torchtitan chooses them: all but attention and every second product. Of layers,
    where it ``ends_early``, all but what stands behind the last activation that is kept.
    """
    if recompute in (Recompute.LAYERS, Recompute.OPERATORS):
        first, end = parts_of(graph).body
        inside = range(first, end or len(graph.operators))
        operators = ((i, graph.operators[i]) for i in inside)
        forward = [(i, o) for i, o in operators if is_forward(o) and o.kind not in NOT_AGAIN]
        if recompute is Recompute.LAYERS:
            return frozenset(i for i, _ in (_needed(forward) if ends_early else forward))
        kept = [i for i, o in forward if o.kind is Kind.GEMM][::2]
        kept += [i for i, o in forward if o.kind is Kind.ATTENTION]
        return frozenset(i for i, _ in forward).difference(kept)
    if recompute is Recompute.ATTENTION:
        return frozenset(_attention(graph.operators))
    return frozenset()


def _needed(forward: list[tuple[int, Operator]]) -> list[tuple[int, Operator]]:
    """All but the sums that end a layer, and the product before them: no gradient reads those."""
    end = len(forward)
    while end and forward[end - 1][1].function == SUM:
        end -= 1
    return forward[: end - 1 if end and forward[end - 1][1].kind is Kind.GEMM else end]


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


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Seconds of a step on the stage that has most to do: at work, and waiting for others."""

    busy_s: float
    bubble_s: float


def pipeline(stages: Sequence[float], micro_steps: int, virtual: int = 1) -> Pipeline:
    """From the seconds that each stage needs for one micro-step.

    The slowest stage is busy all the time but while the pipeline fills and drains, when the first
    micro-step passes forward and the last one back through all other stages (through one chunk of
    each where there are ``virtual`` ones).
    """
    slowest = max(stages)
    return Pipeline(slowest * micro_steps, (sum(stages) - slowest) / virtual)


def layer_shares(job: TrainingJob, layers: int) -> tuple[float, ...]:
    """Share of the layers on each stage; they add up to 1.

    Even unless options of Megatron-LM count the embedding and the loss as a layer, or state how
    many layers the first and the last stage have.
    """
    stages = job.pipeline_parallel
    if stages == 1:
        return (1.0,)
    software = job.software
    first, last = software.embedding_is_layer, software.loss_is_layer
    each = (layers + first + last) / stages
    ends = [
        float(software.first_stage_layers or each - first),
        float(software.last_stage_layers or each - last),
    ]
    between = (layers - sum(ends)) / max(1, stages - 2)
    held = [max(0.0, n) for n in (ends[0], *[between] * (stages - 2), ends[1])]
    return tuple(share / sum(held) for share in held)


def virtual_stages(job: TrainingJob, layers: int) -> int:
    """Chunks of layers on each stage: the job's field, or one of Megatron-LM's two options."""
    if job.virtual_stages > 1 or job.pipeline_parallel == 1:
        return job.virtual_stages
    software = job.software
    if software.chunks_per_stage:
        return software.chunks_per_stage
    if each := software.layers_per_chunk:
        return max(1, layers // (job.pipeline_parallel * each))
    return 1


MATMUL = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION})
CORES = frozenset({Kind.BATCHED_GEMM, Kind.ATTENTION})
START, BODY, END = range(3)
Stage = tuple[float, float, float]  # shares of start, layers and end


class Class(IntEnum):
    """What a device is busy with."""

    MEMORY = 0
    RECURRENT = 1
    MATMUL = 2
    TENSOR_CORE = 3


_IS_MATMUL, _IS_CORE = (np.array([k in some for k in KINDS]) for some in (MATMUL, CORES))
_CLASS = np.where([k is Kind.RNN for k in KINDS], Class.RECURRENT, Class.MEMORY)
_CORES = CLASSES.index(CORES_CLASS)
_FORWARD, _, _WEIGHT, _UPDATE = DIRECTION_CODE.values()


@dataclass(frozen=True, slots=True)
class StageWork:
    """One micro-step of a whole network: arrays (n,) over its typed operators.

    ``place`` says whether an operator stands before, in or behind the repeated layers, ``times``
    how often it runs, recomputation included, ``seconds`` what the device needs for all of them.
    ``host_s`` (seconds of the host), ``flops`` and ``bytes`` are of all of them, too; ``kind`` is a
    Class. ``core`` marks products of activations or fused attention, ``weight`` gradients of
    weights.
    """

    place: NDArray[np.intp]
    kind: NDArray[np.intp]
    forward: NDArray[np.bool_]
    core: NDArray[np.bool_]
    weight: NDArray[np.bool_]
    once: Floats
    times: Floats
    seconds: Floats
    host_s: Floats
    flops: Floats
    bytes: Floats

    def shares(self, stage: Stage) -> Floats:
        """The share of each operator that a stage runs, (n,)."""
        return np.array(stage)[self.place]

    @property
    def forward_s(self) -> Floats:
        """Device seconds of the forward pass, recomputation not counted, (n,)."""
        return self.seconds * self.forward * self.once / np.maximum(self.times, 1e-12)

    @property
    def model_flops(self) -> Floats:
        """FLOPs without what is computed again, (n,)."""
        return self.flops * self.once / np.maximum(self.times, 1e-12)

    @property
    def products(self) -> NDArray[np.bool_]:
        """Which are matrix products, on tensor cores or off them, (n,)."""
        return self.kind >= Class.MATMUL

    def layers_s(self, chosen: NDArray[np.bool_]) -> float:
        """Device seconds of chosen operators (n,) in the repeated layers."""
        return float(self.seconds @ (chosen & (self.place == BODY)))


def stage_work(
    graph: Graph,
    typed: Sequence[TypedOperator],
    work: Work,
    each_s: Floats,
    host_s: Floats,
    again: frozenset[int],
    hooks: float,
) -> StageWork:
    """From arrays of typed operators, and device and host seconds (n,) of one instance of each.

    ``again`` are positions in the graph that run twice, for ``hooks`` of its host time more.
    """
    first, end = parts_of(graph).body
    once = np.array([t.operator.count for t in typed], dtype=float)
    place, times = np.zeros(len(typed), dtype=np.intp), once
    if end or again:
        position, update = _positions(graph, typed), work.direction == _UPDATE
        twice = np.zeros(len(graph.operators) + 1, dtype=bool)
        twice[list(again)] = True
        times = once * (1 + (twice[position] & ~update))
        if end:
            place = np.where(position < first, START, np.where(position < end, BODY, END))
            place = np.where(update, BODY, place)
    matmul = np.where(work.format_class == _CORES, Class.MATMUL, Class.TENSOR_CORE)
    return StageWork(
        place=place,
        kind=np.where(_IS_MATMUL[work.kind], matmul, _CLASS[work.kind]),
        forward=work.direction == _FORWARD,
        core=_IS_CORE[work.kind],
        weight=work.direction == _WEIGHT,
        once=once,
        times=times,
        seconds=each_s * times,
        host_s=host_s * (times + hooks * (times - once)),
        flops=work.flops * times,
        bytes=work.bytes * times,
    )


def _positions(graph: Graph, typed: Sequence[TypedOperator]) -> NDArray[np.intp]:
    """Position in the graph of each typed operator; a cast has that of the operator before it."""
    found, position, following = [], -1, iter((*graph.operators, None))
    awaited = next(following)
    for item in typed:
        # An equal graph may have been typed before this one was built.
        if item.operator is awaited or item.operator == awaited:
            position, awaited = position + 1, next(following)
        found.append(max(0, position))
    return np.array(found, dtype=np.intp)
