"""The physical time of one optimizer step: compute, host, communication, optimizer, overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from profiles.gpus import CPU
from profiles.storage import shipped_yaml

from ..graphs.catalog import ModelEntry, entry_of
from ..graphs.operator import FORWARD, UPDATE, WIDE, Graph, Kind, is_forward
from ..job.frameworks import PYTORCH
from ..job.training_job import TrainingJob
from .autocast import TypedOperator
from .collectives import CollectiveTimes
from .job_graph import LOW_WEIGHTS, fuses, job_graph, job_operators, layer_count, storage_of
from .memory.model import offloaded_bytes
from .operator_time import OperatorTimes
from .operator_time.work import DIRECTION_CODE, KIND_CODE, Floats, Work
from .optimizer import rule_of, update_launches, update_seconds
from .parallel.layer_messages import Inline, inline_messages
from .parallel.messages import NO_TRAFFIC, Replica, Traffic, Wires, gradient_traffic, offloaded
from .parallel.placement import check_split, expert_share, place
from .parallel.stages import (
    Class,
    Recompute,
    Stage,
    StageWork,
    again,
    layer_shares,
    parts_of,
    pipeline,
    recompute_of,
    stage_work,
    virtual_stages,
)

# Elements of the result of an embedding lookup travel in FP32, forward and backward; with HugeCTR's
# mixed precision in the lower format.
SPARSE_BYTES, LOW_MESSAGES = 4.0, "hugectr"
_FORWARD, _UPDATE = DIRECTION_CODE[FORWARD], DIRECTION_CODE[UPDATE]
_CAST, _ATTENTION, _RNN = (KIND_CODE[k] for k in (Kind.CAST, Kind.ATTENTION, Kind.RNN))
# Of the 38 us that a step of a recurrent layer waits (DeepBench launches its four kernels one by
# one), what a CUDA graph leaves out, and the share of a step that it leaves at least.
RECURRENT_LAUNCHES_S, RECURRENT_LEFT = 30e-6, 8 / 38
# Seconds to write a weight of a quantised base out in 16 bits for a pass: of 4 bits 12 on A100 and
# 15 to 27 on A10G (seven pairs of litgpt's tables), of 8 bits 15 to 17 on A100 (two of h2oGPT).
WIDENING_S = 15e-12
# Exponent that joins GPU and host time: the larger one decides, a tie costs 26 % more.
OVERLAP_NORM = 3.0
# Of the work of a step, what GPUs that step together wait for the slowest for each doubling of
# their number, up to so many and where no CUDA graph launches it; 0.03 fits pairs of runs better,
# tuned records worse (docs/explanation/unseen-models.md).
SLOWEST_SHARE, MOST_WAITED_FOR = 0.02, 8
INPUT = ("workers", "data_backend", "dali")  # options that say who reads the samples
# Networks that are trained on photographs, and the least side at which those are decoded for them.
CLASSIFIED, LEAST_SIDE = ("cnn", "efficientnet", "vision-transformer"), 96
LABELLED = ("detection", "segmentation")  # photographs with boxes or masks, in groups of networks


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step by part, on the GPU of the pipeline stage that has most to do.

    ``compute_s`` is device time of all micro-steps, of which ``tensor_core_s``, ``matmul_s``
    (off tensor cores), ``recurrent_s`` and ``memory_s`` are classes; ``host_s`` what the host
    needs to launch it; ``communication_s`` all messages, of which ``node_link_s`` run inside a
    node (NVLink or PCIe) and ``fabric_s`` between nodes, and ``exposed_s`` are hidden behind
    nothing; ``bubble_s`` is waiting for other pipeline stages, ``waiting_s`` for the slowest GPU.
    ``flops`` and ``bytes`` are per GPU and step, ``model_flops`` without what is computed again,
    ``parameters`` those of one GPU before sharding.
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
    waiting_s: float
    flops: float
    model_flops: float
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
        return self.price_graph(job, entry, job_graph(job, entry))

    def price_graph(self, job: TrainingJob, entry: ModelEntry, graph: Graph) -> StepTime:
        """As ``price``, for a network that no catalog holds; ``entry`` says what it is."""
        check_split(job, entry)
        return _Step(self, job, entry, graph).price()

    def work(self, job: TrainingJob, graph: Graph) -> StageWork:
        """Device work of one micro-step of the whole network."""
        typed = job_operators(job, graph)
        work = self.operators.work(job.hardware, typed)
        each_s = self.device_s(job, work)
        wide = np.array([t.operator.function == WIDE for t in typed])
        passes = 1.5 if recompute_of(job) is Recompute.LAYERS else 1.0
        each_s[wide] = work.dims[wide, 1] * passes * WIDENING_S
        host_s = host_rates(job).seconds(work)
        if graph.synchronous:
            host_s[0] += proposals_s(job)
        early = job.software.recompute_ends_early
        twice = again(graph, recompute_of(job), ends_early=early)
        hooked = early and not (job.software.captured or fuses(job))
        hooks = hooked * shipped_yaml("host.yaml")["hooks_share"]
        return stage_work(graph, typed, work, each_s, host_s, twice, hooks)

    def device_s(self, job: TrainingJob, work: Work) -> Floats:
        """Device seconds of one instance of each operator, (n,), by the kernels the job has."""
        each_s = self.operators.price(job.hardware, work)
        if job.software.older_attention:
            times, gpu = shipped_yaml("software.yaml")["older_attention_times"], job.hardware
            own = times.get(gpu.name.partition("-")[0], times.get(gpu.architecture, 1.0))
            each_s[work.kind == _ATTENTION] *= own
        if job.software.captured and (recurrent := work.kind == _RNN).any():
            launched_s, left_s = each_s[recurrent], RECURRENT_LEFT * each_s[recurrent]
            saved_s = work.dims[recurrent, 0] * RECURRENT_LAUNCHES_S
            each_s[recurrent] = np.maximum(launched_s - saved_s, left_s)
        return each_s

    def price_instead(self, job: TrainingJob, step: StepTime, other: TrainingJob) -> float:
        """Seconds of a ``step`` of a job in the software of another, which changes its operators.

        Only those that differ are priced; messages and the update stay what they are.
        """
        entry, gpu = entry_of(job.model), job.hardware
        graph = job_graph(job, entry)
        had, has = _apart(job_operators(job, graph), job_operators(other, job_graph(other, entry)))
        if not had and not has:
            return step.step_s
        work = self.operators.work(gpu, (*had, *has))
        sign = np.repeat((-1.0, 1.0), (len(had), len(has)))
        twice = (work.direction == _FORWARD) & (recompute_of(job) is Recompute.LAYERS)
        count = np.array([t.operator.count for t in (*had, *has)]) * (1 + twice) * sign
        times = job.micro_steps / job.pipeline_parallel
        own, each = (step.compute_s, step.host_s), times * count
        other_s = self.device_s(other, work) * each, host_rates(other).seconds(work) * each
        # At least what is priced anew: not all that is computed in the forward pass is so twice.
        pairs = zip(own, other_s, strict=True)
        then = [max(float(s + t.sum()), float(t[len(had) :].sum())) for s, t in pairs]
        before, after = (busy_s(*pair, synchronous=graph.synchronous) for pair in (own, then))
        rest_s = step.exposed_s + step.optimizer_s
        return (step.step_s - rest_s) * after / before + rest_s


@dataclass(frozen=True, slots=True)
class HostRates:
    """Seconds of host work for one operator of each pass, one cast, one optimizer launch."""

    forward_s: float
    backward_s: float
    cast_s: float
    update_s: float

    def seconds(self, work: Work) -> Floats:
        """Seconds of one instance of each operator, (n,); only some casts are launches."""
        update, cast = work.direction == _UPDATE, work.kind == _CAST
        each = np.where(work.direction == _FORWARD, self.forward_s, self.backward_s)
        launched = np.where(update | (work.function > 0), self.cast_s, 0.0)
        return np.where(cast, launched, each) * work.kernels


ON_DEVICE = HostRates(0.0, 0.0, 0.0, 0.0)


def host_rates(job: TrainingJob) -> HostRates:
    """The rates of a job's framework, compiled or captured as its options say.

    All zero on a CPU: the rows of its tables hold the launch.
    """
    if job.hardware.kind == CPU:
        return ON_DEVICE
    software = job.software
    core = job.framework == "megatron" and software.megatron_core
    framework = "megatron-core" if core else job.framework
    # One process serves its GPUs in turn, and copies the model to them before (DataParallel).
    turns = job.gpus + 1 if software.one_process and job.gpus > 1 else 1
    hosts, gpu = shipped_yaml("host.yaml")["hosts"], job.hardware
    host = hosts.get(gpu.name.partition("-")[0], hosts.get(gpu.architecture, 1.0))
    return _rates(framework, software.compiled, software.captured, turns, host)


@cache
def _rates(framework: str, compiled: bool, captured: bool, turns: int, host: float) -> HostRates:
    table = shipped_yaml("host.yaml")
    known = {key: {k: v * host for k, v in r.items()} for key, r in table["frameworks"].items()}
    rates = known.get(framework, known[PYTORCH])
    share = table["compiled_share"] if compiled else 1.0
    if captured:
        rates, share = dict.fromkeys(rates, table["cuda_graph_us"]), 1.0
    scale = share * turns * 1e-6
    cast_us = table["cuda_graph_us"] if captured else table["cast_us"] * host
    forward_s, backward_s = (rates[key] * scale for key in ("forward_us", "backward_us"))
    return HostRates(forward_s, backward_s, cast_us * scale, rates["update_us"] * 1e-6)


def busy_s(device_s: float, host_s: float, *, synchronous: bool = False) -> float:
    """Seconds that device and host take together.

    One runs ahead of the other, unless the host waits for results (``synchronous``).
    """
    if synchronous:
        return device_s + host_s
    return float((device_s**OVERLAP_NORM + host_s**OVERLAP_NORM) ** (1 / OVERLAP_NORM))


def slowest_share(job: TrainingJob) -> float:
    """Share of the work of a step in which GPUs wait for the slowest of them."""
    as_one = job.software.one_process or job.software.captured
    return 0.0 if as_one else SLOWEST_SHARE * math.log2(min(job.gpus, MOST_WAITED_FOR))


def input_s(job: TrainingJob, workers: int | None = None) -> float:
    """Seconds in which so many workers, or those stated, decode a step's images, else 0."""
    software, entry = job.software, entry_of(job.model)
    size = job.image_size or entry.image_size or (0,)
    side, labelled = min(size), entry.group in LABELLED and len(size) == 2
    decodes = software.decodes_in_workers and job.framework == PYTORCH
    workers = workers or software.loader_workers
    if not (decodes and workers and (labelled or entry.group in CLASSIFIED)):
        return 0.0
    each = "labelled_per_worker" if labelled else "images_per_worker"
    rate = shipped_yaml("host.yaml")[each] * workers
    return job.step_samples / job.data_parallel / rate if side >= LEAST_SIDE else 0.0


def proposals_s(job: TrainingJob) -> float:
    """Seconds in which TensorFlow's host chooses the boxes that a detector goes on with."""
    each = shipped_yaml("host.yaml")["proposals_s"]
    image_s = float(each.get(job.hardware.architecture, each["later"]))
    return image_s * job.micro_batch_size if job.framework.startswith("tensorflow") else 0.0


def _apart(
    one: Sequence[TypedOperator], other: Sequence[TypedOperator]
) -> tuple[Sequence[TypedOperator], Sequence[TypedOperator]]:
    """Two lists of operators without what they begin and end with alike."""
    start, end = 0, 0
    shorter = min(len(one), len(other))
    while start < shorter and one[start] == other[start]:
        start += 1
    while end < shorter - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[start : len(one) - end], other[start : len(other) - end]


class _Step:
    """One pricing: what its parts share."""

    def __init__(self, model: StepModel, job: TrainingJob, entry: ModelEntry, graph: Graph) -> None:
        self.model, self.job, self.entry, self.graph = model, job, entry, graph
        self.work = model.work(job, graph)
        self.parts = parts_of(graph)
        self.place = place(job)
        self.wires = Wires(model.collectives, job)
        self.layers = layer_count(job, entry, self.parts.layers)
        self.shares = layer_shares(job, self.layers)
        self.virtual = virtual_stages(job, self.layers)
        parts = self.wires, self.place, graph, entry, self.work, self.virtual
        alone = job.split == job.expert_parallel == 1
        self.inline = Inline() if alone else inline_messages(*parts)
        self.sparse = self._sparse()
        # activations, as they are saved and as they are read; Megatron-LM has a stream for it
        hidden_s = float(self.work.seconds.sum()) if job.framework in LOW_WEIGHTS else 0.0
        self.offloaded = offloaded(job, 2 * offloaded_bytes(job)).behind(hidden_s)

    def price(self) -> StepTime:
        stages, accum = self._stages(), self.job.micro_steps
        each = {stage: self._micro_step_s(stage) for stage in set(stages)}  # most are alike
        micro = [each[stage] for stage in stages]
        slowest = micro.index(max(micro))
        run = pipeline(micro, accum, self.virtual)
        data, optimizer_s = self._after_backward(stages)
        work, here = self.work, self.work.shares(stages[slowest])
        traffic = self._messages(stages[slowest]).times(accum) + data
        classes = {
            kind: float((work.seconds * (work.kind == kind)) @ here) * accum for kind in Class
        }
        waiting_s = slowest_share(self.job) * run.busy_s
        return StepTime(
            step_s=run.busy_s + run.bubble_s + waiting_s + data.exposed_s + optimizer_s,
            compute_s=sum(classes.values()),
            tensor_core_s=classes[Class.TENSOR_CORE],
            matmul_s=classes[Class.MATMUL],
            recurrent_s=classes[Class.RECURRENT],
            memory_s=classes[Class.MEMORY],
            host_s=float(work.host_s @ here) * accum,
            communication_s=traffic.seconds,
            node_link_s=traffic.node_s,
            fabric_s=traffic.fabric_s,
            exposed_s=traffic.exposed_s,
            optimizer_s=optimizer_s,
            bubble_s=run.bubble_s,
            waiting_s=waiting_s,
            flops=float(work.flops @ here) * accum,
            model_flops=float(work.model_flops @ here) * accum,
            bytes=float(work.bytes @ here) * accum,
            parameters=round(self._weights(slowest)),
        )

    def _stages(self) -> list[Stage]:
        last = len(self.shares) - 1
        return [(float(i == 0), share, float(i == last)) for i, share in enumerate(self.shares)]

    def _micro_step_s(self, stage: Stage) -> float:
        work, here = self.work, self.work.shares(stage)
        if self.graph.synchronous:
            passes_s = float(work.seconds @ here) + float(work.host_s @ here)
        else:  # the backward pass comes after a forward pass that the host may launch too slowly
            passes = here * work.forward, here * ~work.forward
            passes_s = sum(busy_s(float(work.seconds @ p), float(work.host_s @ p)) for p in passes)
        return passes_s + self._messages(stage).exposed_s

    def _messages(self, stage: Stage) -> Traffic:
        """Messages of one micro-step of a stage."""
        body = self.inline.body + self.offloaded
        return self.sparse.times(stage[0]) + body.times(stage[1]) + self.inline.boundary

    def _sparse(self) -> Traffic:
        """Rows of tables that are spread over the GPUs, to the samples that asked and back."""
        if not self.graph.sparse_parameters or self.job.data_parallel == 1:
            return NO_TRAFFIC
        rows = sum(
            o.writes for o in self.graph.operators if o.kind is Kind.EMBEDDING and is_forward(o)
        )
        low = self.job.precision.activation_dtype.bytes
        width = low if self.job.framework == LOW_MESSAGES else SPARSE_BYTES
        return self.wires.send("all_to_all", rows * width, self.place.data, 2)

    def _weights(self, stage: int) -> float:
        return self.parts.stage_weights(stage, self.shares[stage], len(self.shares))

    def _after_backward(self, stages: list[Stage]) -> tuple[Traffic, float]:
        """Gradient messages and optimizer seconds of the stage that holds most weights."""
        stage = max(range(len(stages)), key=self._weights)
        graph, job, here = self.graph, self.job, self.work.shares(stages[stage])
        dense = float(graph.trainable_parameters - graph.sparse_parameters)
        held = dense * self._weights(stage) / max(1, graph.parameters)
        frozen = (graph.parameters - graph.trainable_parameters) * held / max(1.0, dense)
        bits = job.software.base_bits or 8 * job.precision.activation_dtype.bytes
        experts = expert_share(job, self.entry)
        forward_s = float(self.work.forward_s @ here)
        backward_s = float(self.work.seconds @ here) - forward_s
        storage, traffic = storage_of(job), NO_TRAFFIC
        for share, group in ((1 - experts, self.place.data), (experts, self.place.expert_data)):
            kept = frozen * share * bits / 8
            replica = Replica(held * share, self.layers, forward_s, backward_s, kept)
            traffic += gradient_traffic(self.wires, group, replica, storage)
        rule = rule_of(job, self.entry)
        shards = 1 if job.shards == "ddp" else self.place.data.gpus
        tensors = graph.parameter_tensors * held / max(1.0, float(graph.trainable_parameters))
        if job.software.offloads_optimizer and job.software.updates:  # by a node's processors
            each_s = shipped_yaml("host.yaml")["offloaded_update_s"] * storage.state_scale
            return traffic, each_s * held / shards * min(job.gpus, job.gpus_per_node)
        device_s = update_seconds(self.model.operators, job, rule, held / shards, tensors)
        launched_s = host_rates(job).update_s * update_launches(job, rule, tensors)
        return traffic, max(device_s, launched_s)
