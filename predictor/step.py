"""The physical time of one optimizer step: compute, host, communication, optimizer, overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import profiles

from .autocast import TypedOperator, autocast, runnable
from .collective_time import CollectiveTimes
from .graphs.catalog import ModelEntry, entry_of, graph_of, overrides
from .graphs.operator import Direction, Graph, Kind, Operator
from .graphs.workload import Workload
from .job import TrainingJob
from .operator_time import OperatorTimes
from .precision import Dtype

# Seconds of host work per device launch in eager mode: host-timed rows of the operator tables
# bottom out at 8-13 us (apex_plus, DeepBench; NeuSight's whole autograd call at 17-32 us). This and
# the exponent below were chosen once, from a coarse grid over all shipped runs.
LAUNCH_S = 12e-6
# Exponent that joins GPU and host time: the larger one decides, a tie costs 41 % more.
OVERLAP_NORM = 2.0
# Bytes of one gradient bucket of torch DDP; the last one can never be hidden.
BUCKET_BYTES = 25 * 2**20
# Part of the backward pass behind which gradient reduction can hide; assumed, as no source measures
# it: the first bucket is ready only after the last layers have gone back.
HIDEABLE = 0.8
# Share of a 512-token BERT batch that is not padding: about half (Krell et al., arXiv 2107.02027).
UNPADDED = 0.5

# Frameworks whose GPT recipes use fused attention unless told otherwise (NeMo: Transformer Engine;
# llm-foundry: attn_impl flash).
FLASH_BY_DEFAULT = frozenset({"nemo", "llm-foundry"})

MATMUL = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION})


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step by part; all but ``step_s`` are parts of it before overlap.

    ``compute_s`` is device time of all micro-steps, of which ``tensor_core_s``, ``matmul_s``
    (off tensor cores), ``recurrent_s`` and ``memory_s`` are classes; ``host_s`` what the host
    needs to launch it; ``exposed_s`` the communication not hidden behind the backward pass.
    ``flops`` and ``bytes`` are per GPU and step.
    """

    step_s: float
    compute_s: float
    tensor_core_s: float
    matmul_s: float
    recurrent_s: float
    memory_s: float
    host_s: float
    communication_s: float
    exposed_s: float
    optimizer_s: float
    bubble: float
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
        """The physical step time of a job; raises GraphError where the model has no graph."""
        gpu = job.hardware
        entry = entry_of(job.model)
        graph = job_graph(job, entry)
        typed = autocast(graph, runnable(job.precision, gpu), gpu)
        seconds = self.operators.seconds(gpu, typed) * np.array([t.operator.count for t in typed])
        accum = job.grad_accum
        classes = _by_class(typed, seconds * accum)
        compute_s = float(seconds.sum()) * accum
        host_s = LAUNCH_S * accum * sum(t.operator.kernels * t.operator.count for t in typed)
        optimizer_s = self._optimizer_s(job, entry, graph)
        reduce_s, inline_s = self._communication_s(job, entry, graph)
        last = min(1.0, BUCKET_BYTES / max(1.0, 4.0 * graph.trainable_parameters))
        backward_s = float(seconds.sum()) * 2 / 3
        exposed_s = max(last * reduce_s, reduce_s - HIDEABLE * backward_s) + inline_s
        bubble = (job.pipeline_parallel - 1) / accum
        busy_s = (compute_s**OVERLAP_NORM + host_s**OVERLAP_NORM) ** (1 / OVERLAP_NORM)
        return StepTime(
            step_s=busy_s * (1 + bubble) + exposed_s + optimizer_s,
            compute_s=compute_s,
            tensor_core_s=classes["tensor_core"],
            matmul_s=classes["matmul"],
            recurrent_s=classes["recurrent"],
            memory_s=classes["memory"],
            host_s=host_s,
            communication_s=reduce_s + inline_s,
            exposed_s=exposed_s,
            optimizer_s=optimizer_s,
            bubble=bubble,
            flops=graph.flops * accum,
            bytes=accum * sum(t.bytes * t.operator.count for t in typed),
            parameters=graph.parameters,
        )

    def _optimizer_s(self, job: TrainingJob, entry: ModelEntry, graph: Graph) -> float:
        rule = optimizer_rule(job.optimizer or entry.optimizer)
        shards = job.data_parallel if job.sharding != "ddp" else 1
        dense = (graph.trainable_parameters - graph.sparse_parameters) / shards
        per_weight = rule["bytes_per_parameter"]
        launches = rule["launches_per_tensor"] * graph.parameter_tensors
        if job.precision.mixed:
            per_weight += 8  # unscale the gradient: read, write
            launches += graph.parameter_tensors * 0.05
        update = Operator(Kind.OPTIMIZER, Direction.UPDATE, (1, int(dense)), 0.0, dense, dense)
        typed = TypedOperator(update, Dtype.FP32, dense * per_weight, False)
        device_s = float(self.operators.seconds(job.hardware, [typed])[0])
        return float(max(device_s, launches * LAUNCH_S))

    def _communication_s(
        self, job: TrainingJob, entry: ModelEntry, graph: Graph
    ) -> tuple[float, float]:
        """Seconds of gradient reduction, and of messages inside forward and backward."""
        ranks = job.data_parallel
        dense = float(graph.trainable_parameters - graph.sparse_parameters)
        element = 4.0 if job.precision.mixed else float(job.precision.activation_dtype.bytes)
        nodes = min(job.nodes, ranks)
        collective = self._collective(job)
        reduce_s = collective("all_reduce", dense * element, ranks, nodes)
        inline_s = 0.0
        if job.sharding in ("zero3", "fsdp"):
            weights = dense * job.precision.activation_dtype.bytes
            gather_s = collective("all_gather", weights, ranks, nodes)
            scatter_s = collective("reduce_scatter", weights, ranks, nodes)
            reduce_s = (2 * gather_s + scatter_s) * job.grad_accum
        if graph.sparse_parameters and ranks > 1:
            rows = sum(
                o.writes for o in graph.operators
                if o.kind is Kind.EMBEDDING and o.direction is Direction.FORWARD
            )  # fmt: skip
            inline_s += 2 * collective("all_to_all", rows * 4.0, ranks, nodes) * job.grad_accum
        if job.tensor_parallel > 1:
            activation = self._activation_bytes(job, entry)
            layers = _dimension(job, entry, "layers") / job.pipeline_parallel
            message_s = collective("all_reduce", activation, job.tensor_parallel, 1)
            inline_s += 4 * layers * message_s * job.grad_accum
        return reduce_s, inline_s

    def _collective(self, job: TrainingJob) -> Any:
        def seconds(operation: str, payload: float, gpus: int, nodes: int) -> float:
            return self.collectives.seconds(
                job.hardware, operation, payload, gpus, nodes, job.fabric
            )

        return seconds

    def _activation_bytes(self, job: TrainingJob, entry: ModelEntry) -> float:
        tokens = job.micro_batch_size * (job.seq_len or entry.seq_len or 1)
        hidden = _dimension(job, entry, "hidden")
        return tokens * hidden * job.precision.activation_dtype.bytes


def job_graph(job: TrainingJob, entry: ModelEntry) -> Graph:
    """The operators of one micro-step on one GPU of the job."""
    graph = graph_of(entry.name, overrides(entry, job.variant), workload(job, entry))
    if job.option("act_ckpt") in ("on", "full", "true"):
        return checkpointed(graph)
    return graph


def workload(job: TrainingJob, entry: ModelEntry) -> Workload:
    """The micro-batch of a job, completed by the defaults of the catalog entry."""
    seq_len = job.seq_len or entry.seq_len
    if seq_len and (job.option("unpad").startswith("on") or job.option("seq_binning")):
        seq_len = max(1, int(seq_len * UNPADDED))
    if seq_len and job.context_parallel > 1:
        seq_len = max(1, seq_len // job.context_parallel)
    return Workload(
        batch_size=job.micro_batch_size,
        seq_len=seq_len,
        image_size=job.image_size or entry.image_size,
        flash_attention=_flash_attention(job),
        tensor_parallel=job.tensor_parallel,
        pipeline_parallel=job.pipeline_parallel,
    )


def _flash_attention(job: TrainingJob) -> bool:
    """Stated by the job, else the default of its framework."""
    backend = job.option("attention_backend", job.option("flash_attention"))
    if backend:
        return backend in ("on", "flash", "fused")
    return job.framework in FLASH_BY_DEFAULT


@lru_cache(maxsize=512)
def checkpointed(graph: Graph) -> Graph:
    """Full activation checkpointing: every layer before the loss runs forward once more."""
    again = tuple(
        op for op in graph.operators
        if op.direction is Direction.FORWARD and op.kind not in (Kind.LOSS, Kind.EMBEDDING)
    )  # fmt: skip
    return Graph(
        operators=graph.operators + again,
        parameters=graph.parameters,
        trainable_parameters=graph.trainable_parameters,
        parameter_tensors=graph.parameter_tensors,
        sparse_parameters=graph.sparse_parameters,
        input_elements=graph.input_elements,
    )


@cache
def _optimizers() -> Mapping[str, Mapping[str, float]]:
    path = Path(profiles.__file__).parent / "optimizers.yaml"
    rules: Mapping[str, Mapping[str, float]] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return rules


def optimizer_rule(name: str) -> Mapping[str, float]:
    """Traffic and launches of an optimizer; an unknown name is priced as its nearest known part."""
    rules = _optimizers()
    key = name.lower().replace("_", "").replace("-", "")
    if key in rules:
        return rules[key]
    known = [rule for rule in rules if rule in key]
    return rules[max(known, key=len)] if known else rules["adam"]


def _dimension(job: TrainingJob, entry: ModelEntry, key: str) -> float:
    changes = dict(overrides(entry, job.variant))
    return float(changes.get(key, entry.architecture.get(key, 0)))


def _by_class(typed: tuple[TypedOperator, ...], seconds: Any) -> dict[str, float]:
    totals = {"tensor_core": 0.0, "matmul": 0.0, "recurrent": 0.0, "memory": 0.0}
    for item, time in zip(typed, seconds, strict=True):
        kind = item.operator.kind
        if kind is Kind.RNN:
            totals["recurrent"] += float(time)
        elif kind in MATMUL:
            totals["tensor_core" if item.tensor_core else "matmul"] += float(time)
        else:
            totals["memory"] += float(time)
    return totals
