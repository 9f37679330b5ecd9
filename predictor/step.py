"""The physical time of one optimizer step: compute, host, communication, optimizer, overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .collective_time import CollectiveTimes
from .graphs.catalog import ModelEntry, entry_of
from .graphs.operator import Direction, Graph, Kind
from .graphs.parts import is_forward, parts_of
from .host import busy_s, launch_s
from .formats import storage_of
from .job import TrainingJob
from .job_graph import job_graph, job_operators
from .operator_time import OperatorTimes
from .operator_time.work import Floats
from .optimizer import optimizer_rule, update_launches, update_seconds
from .parallel.checks import check_split
from .parallel.experts import expert_share
from .parallel.gradients import Replica, gradient_traffic
from .parallel.layer_messages import Inline, LayerWork, inline_messages
from .parallel.placement import Placement, place
from .parallel.recompute import again, recompute_of
from .parallel.stages import layer_shares, pipeline, virtual_stages
from .parallel.traffic import Traffic, Wires
from .stage_work import BODY, CORES, END, MATMUL, START, StageWork, stage_work

# Elements of the result of an embedding lookup travel in FP32, forward and backward.
SPARSE_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step by part, on the GPU of the pipeline stage that has most to do.

    ``compute_s`` is device time of all micro-steps, of which ``tensor_core_s``, ``matmul_s``
    (off tensor cores), ``recurrent_s`` and ``memory_s`` are classes; ``host_s`` what the host
    needs to launch it; ``communication_s`` all messages, of which ``node_link_s`` run inside a
    node (NVLink or PCIe) and ``fabric_s`` between nodes, and ``exposed_s`` are hidden behind
    nothing; ``bubble_s`` is waiting for other pipeline stages. ``flops`` and ``bytes`` are per GPU
    and step, ``parameters`` those of one GPU before sharding.
    """

    step_s: float
    compute_s: float
    tensor_core_s: float
    matmul_s: float
    recurrent_s: float
    memory_s: float
    host_s: float
    communication_s: float
    node_link_s: float
    fabric_s: float
    exposed_s: float
    optimizer_s: float
    bubble_s: float
    flops: float
    bytes: float
    parameters: int

    @property
    def tensor_core_share(self) -> float:
        """Share of device time on tensor cores."""
        return self.tensor_core_s / self.compute_s if self.compute_s else 0.0


@dataclass(frozen=True, slots=True)
class StepModel:
    """Prices a job from operator and collective tables; nothing in it is fitted end to end."""

    operators: OperatorTimes
    collectives: CollectiveTimes

    def price(self, job: TrainingJob) -> StepTime:
        """The physical step time of a job.

        Raises GraphError where the model has no graph, JobError for a split that cannot be.
        """
        entry = entry_of(job.model)
        check_split(job, entry)
        return _Step(self, job, entry, job_graph(job, entry)).price()

    def work(self, job: TrainingJob, graph: Graph) -> StageWork:
        """Device work of one micro-step of the whole network."""
        typed = job_operators(job, graph)
        once_s = self.operators.seconds(job.hardware, typed)
        return stage_work(graph, typed, once_s, again(graph, recompute_of(job)))


class _Step:
    """One pricing: what its parts share."""

    def __init__(self, model: StepModel, job: TrainingJob, entry: ModelEntry, graph: Graph) -> None:
        self.model, self.job, self.entry, self.graph = model, job, entry, graph
        self.work = model.work(job, graph)
        self.parts = parts_of(graph)
        self.place: Placement = place(job)
        self.wires = Wires(model.collectives, job)
        self.virtual = virtual_stages(job, self.parts.layers)
        self.stages = _stage_shares(layer_shares(job, self.parts.layers))
        self.inline = self._inline()

    def price(self) -> StepTime:
        micro = [self._micro_step_s(shares) for shares in self.stages]
        slowest = int(np.argmax(micro))
        shares, accum = self.stages[slowest], self.job.grad_accum
        run = pipeline(micro, accum, self.virtual)
        inside = self._messages(shares).times(accum)
        data, optimizer_s = self._after_backward()
        traffic = inside + data
        classes = self.work.classes(shares)
        return StepTime(
            step_s=run.busy_s + run.bubble_s + data.exposed_s + optimizer_s,
            compute_s=self.work.device_s(shares) * accum,
            tensor_core_s=classes["tensor_core"] * accum,
            matmul_s=classes["matmul"] * accum,
            recurrent_s=classes["recurrent"] * accum,
            memory_s=classes["memory"] * accum,
            host_s=self._host_s(shares) * accum,
            communication_s=traffic.seconds,
            node_link_s=traffic.node_s,
            fabric_s=traffic.fabric_s,
            exposed_s=traffic.exposed_s,
            optimizer_s=optimizer_s,
            bubble_s=run.bubble_s,
            flops=self.work.flops(shares) * accum,
            bytes=self.work.bytes(shares) * accum,
            parameters=round(self._weights(slowest)),
        )

    def _micro_step_s(self, shares: Floats) -> float:
        device_s = self.work.device_s(shares)
        return busy_s(device_s, self._host_s(shares)) + self._messages(shares).exposed_s

    def _host_s(self, shares: Floats) -> float:
        return launch_s(self.job) * self.work.launches(shares)

    def _messages(self, shares: Floats) -> Traffic:
        """Messages of one micro-step of a stage."""
        start, body, end = shares
        inline = self.inline
        inside = inline.start.times(start) + inline.body.times(body) + inline.end.times(end)
        return inside + inline.boundary + self._sparse().times(start)

    def _inline(self) -> Inline:
        work = LayerWork(
            self.work.layers_s(MATMUL, Direction.FORWARD),
            self.work.layers_s(MATMUL, Direction.WEIGHT_GRADIENT),
            self.work.layers_s(CORES),
        )
        return inline_messages(
            self.wires, self.place, self.graph, self.entry, work, recompute_of(self.job),
            self.virtual,
        )  # fmt: skip

    def _sparse(self) -> Traffic:
        """Rows of tables that are spread over the GPUs, to the samples that asked and back."""
        if not self.graph.sparse_parameters or self.job.data_parallel == 1:
            return Traffic()
        rows = sum(
            o.writes for o in self.graph.operators if o.kind is Kind.EMBEDDING and is_forward(o)
        )
        return self.wires.send("all_to_all", rows * SPARSE_BYTES, self.place.data, 2)

    def _weights(self, stage: int) -> float:
        return self.parts.stage_weights(stage, float(self.stages[stage][BODY]), len(self.stages))

    def _after_backward(self) -> tuple[Traffic, float]:
        """Gradient messages and optimizer seconds of the stage that holds most weights."""
        stage = max(range(len(self.stages)), key=self._weights)
        graph, shares = self.graph, self.stages[stage]
        dense = float(graph.trainable_parameters - graph.sparse_parameters)
        held = dense * self._weights(stage) / max(1, graph.parameters)
        experts = expert_share(self.job, self.entry)
        forward_s = self.work.forward_s(shares)
        backward_s = self.work.device_s(shares) - forward_s
        traffic = Traffic()
        for weights, group in (
            (held * (1 - experts), self.place.data), (held * experts, self.place.expert_data)
        ):  # fmt: skip
            replica = Replica(weights, self.parts.layers, forward_s, backward_s)
            traffic += gradient_traffic(self.wires, group, replica, storage_of(self.job))
        return traffic, self._optimizer_s(held)

    def _optimizer_s(self, held: float) -> float:
        job, graph = self.job, self.graph
        rule = optimizer_rule(job.optimizer or self.entry.optimizer)
        shards = 1 if job.sharding == "ddp" else self.place.data.gpus
        device_s = update_seconds(self.model.operators, job, rule, held / shards)
        tensors = graph.parameter_tensors * held / max(1.0, float(graph.trainable_parameters))
        return max(device_s, launch_s(job) * update_launches(job, rule, tensors))


def _stage_shares(layers: tuple[float, ...]) -> list[Floats]:
    """Shares of start, layers and end that each stage has, (3,) each."""
    stages = []
    for stage, share in enumerate(layers):
        held = np.zeros(3)
        held[START], held[BODY], held[END] = stage == 0, share, stage == len(layers) - 1
        stages.append(held)
    return stages
