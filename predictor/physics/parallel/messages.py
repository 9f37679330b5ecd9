"""Messages by the link they take, how much of them nothing hides, and those of data parallelism.

Plain replicas all-reduce gradients in buckets while the backward pass runs (Li et al., arXiv
2006.15704). ZeRO (Rajbhandari et al., arXiv 1910.02054): stages 1 and 2 reduce-scatter gradients
and gather weights after the step, stage 2 reduces every micro-step; stage 3 and FSDP (Zhao et al.,
arXiv 2304.11277) gather each unit's weights before its forward and its backward, FSDP behind the
work of the one before; DeepSpeed waits in hooks of every module (partitioned_param_coordinator.py).
Under a pipeline they come once a step, for they are kept, and gradients are reduced behind the last
micro-batch (torch.distributed.pipelining; torchtitan's reshard_after_forward).
Hybrid sharding does so inside a node, and all-reduces between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...job.fabrics import fabric_of
from ...job.training_job import TrainingJob
from ..collectives import CollectiveTimes
from ..job_graph import LOW_WEIGHTS, Storage
from .placement import Group


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seconds of messages: inside a node (NVLink or PCIe), over the fabric, and ``exposed_s``.

    A message between nodes counts as one of the fabric, its part inside the nodes included.
    """

    node_s: float = 0.0
    fabric_s: float = 0.0
    exposed_s: float = 0.0

    @property
    def seconds(self) -> float:
        """All messages, hidden or not."""
        return self.node_s + self.fabric_s

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.node_s + other.node_s,
            self.fabric_s + other.fabric_s,
            self.exposed_s + other.exposed_s,
        )

    def times(self, factor: float) -> Traffic:
        """The same messages this often, or this part of them."""
        return Traffic(self.node_s * factor, self.fabric_s * factor, self.exposed_s * factor)

    def behind(self, work_s: float, first: float = 0.0) -> Traffic:
        """Hidden behind ``work_s`` of other work but for what is longer, and a share ``first``."""
        exposed = max(first * self.seconds, self.seconds - work_s)
        return Traffic(self.node_s, self.fabric_s, min(self.seconds, exposed))


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class Wires:
    """Prices the messages of one job."""

    collectives: CollectiveTimes
    job: TrainingJob

    def send(self, operation: str, payload_bytes: float, group: Group, times: float = 1) -> Traffic:
        """``times`` collectives that nothing hides; payload as ``CollectiveTimes.seconds`` has."""
        if times <= 0:
            return NO_TRAFFIC
        job = self.job
        if group.nodes > 1:  # all groups of a node send at once, each by its part of the adapters
            rails = fabric_of(job.hardware, job.fabric).rails
            payload_bytes /= min(1.0, rails * group.in_node / job.gpus_per_node)
        seconds = times * self.collectives.seconds(
            job.hardware, operation, payload_bytes, group.gpus, group.nodes, job.fabric
        )
        if group.nodes > 1:
            return Traffic(fabric_s=seconds, exposed_s=seconds)
        return Traffic(node_s=seconds, exposed_s=seconds)


BUCKET_BYTES = 25 * 2**20  # of one gradient bucket of torch DDP; the last can never be hidden
# An all-reduce behind the backward pass costs the step this share of its time all the same: its
# kernels take multiprocessors and bandwidth from the work beside them. Of 0, 0.3, 0.5, 0.7 and 1
# the best for the way from one GPU to several over five sources; in some of them 1 was better.
CONTENTION = 0.7
# The same of sharded units, of 0, 0.2, 0.35, 0.5, 0.7 and 1 over 237 runs of llm-foundry and two
# draws: work beside messages takes up to two fifths longer (arXiv 2507.03114).
SHARDED_CONTENTION = 0.5
# What each further GPU of a ring costs a step in every message of a sharded unit, hidden or not:
# 1.5 to 2.6 us from 128 to 512 H100 (llm-foundry's tables of MPT-1B, -3B and -7B).
RANK_S = 2e-6
FULLY = ("zero3", "fsdp", "hsdp")
# Of a link to the host, what pinned copies reach (25 of 32 GB/s, NVIDIA's bandwidthTest on A100)
# where two GPUs share a switch, as in DGX A100 and HGX.
LINK_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Replica:
    """What one GPU reduces over a group: trained elements, in how many units, and its work.

    ``forward_s`` and ``backward_s`` are seconds of one micro-step; ``frozen_bytes`` are those of
    weights that are not trained, which fully sharded units gather all the same.
    """

    weights: float
    units: int
    forward_s: float
    backward_s: float
    frozen_bytes: float = 0.0


def gradient_traffic(wires: Wires, group: Group, held: Replica, storage: Storage) -> Traffic:
    """Messages of one optimizer step over the replicas of ``group``, and to and from its hosts."""
    job = wires.job
    host = _weights_in_host(job, held, group.gpus, storage)
    if group.gpus == 1 or held.weights <= 0:
        return host
    if job.shards in FULLY:
        return host + _fully_sharded(wires, group, held, storage)
    gradients = held.weights * storage.gradient
    if job.shards == "ddp":
        reduced = wires.send("all_reduce", gradients, group)
        return host + _behind_backward(job, reduced, gradients, held)
    scattered = wires.send("reduce_scatter", gradients, group)
    passes = job.micro_steps if job.shards == "zero2" else 1
    gathered = wires.send("all_gather", held.weights * _sent(job), group)
    if job.software.overlaps_weights:
        gathered = gathered.behind(held.forward_s, first=1 / held.units)
    return host + _behind_backward(job, scattered, gradients, held).times(passes) + gathered


def _fully_sharded(wires: Wires, group: Group, held: Replica, storage: Storage) -> Traffic:
    job = wires.job
    shard = Group(group.in_node, 1) if job.shards == "hsdp" else group
    reduced = held.weights * _reduced(job, storage)
    gather = wires.send("all_gather", held.weights * _sent(job) + held.frozen_bytes, shard)
    scatter = wires.send("reduce_scatter", reduced, shard)
    first = 1.0 if job.shards == "zero3" else max(1 / held.units, SHARDED_CONTENTION)
    forward = gather.behind(held.forward_s, first=first)
    kept = job.pipeline_parallel > 1
    backward = (scatter if kept else gather + scatter).behind(held.backward_s, first=first)
    waited = (3 - kept) * held.units * RANK_S * (shard.gpus - 1)  # gathers, a scatter of each unit
    inside = shard.nodes == 1
    ring = Traffic(waited * inside, waited * (not inside), waited)
    total = (forward + backward + ring).times(1 if kept else job.micro_steps)
    if job.shards == "hsdp" and group.nodes > 1:
        summed = wires.send("all_reduce", reduced / shard.gpus, Group(group.nodes, group.nodes))
        total += summed.behind(held.backward_s, first=first)
    return total


def _weights_in_host(job: TrainingJob, held: Replica, shards: int, storage: Storage) -> Traffic:
    # each comes twice a micro-step; FSDP keeps the format of its shards and loads behind its work
    fsdp = job.shards in ("fsdp", "hsdp")
    weight = storage.weight if fsdp else _sent(job)
    moved = held.weights * (2 * weight + _reduced(job, storage)) + 2 * held.frozen_bytes
    first, work_s = 1 / held.units if fsdp else 1.0, held.forward_s + held.backward_s
    sent = offloaded(job, job.software.offloads_weights * moved / shards)
    return sent.behind(work_s, first=first).times(job.micro_steps)


def offloaded(job: TrainingJob, moved_bytes: float) -> Traffic:
    """Copies between a GPU and its host; a CPU is its own."""
    rate = LINK_SHARE * job.hardware.pcie_bytes_per_s
    return Traffic(moved_bytes / rate) if moved_bytes and rate else NO_TRAFFIC


def _behind_backward(job: TrainingJob, sent: Traffic, sent_bytes: float, held: Replica) -> Traffic:
    """Buckets go out as the last backward of a step fills them; all after it where not asked."""
    if not job.software.overlaps_gradients:
        return sent
    last = 1 / max(1, ceil(sent_bytes / BUCKET_BYTES))
    return sent.behind((1 - last) * held.backward_s, first=max(last, CONTENTION))


def _sent(job: TrainingJob) -> int:
    """Bytes of one gathered weight: the lower format of a mixed policy."""
    return job.precision.activation_dtype.bytes


def _reduced(job: TrainingJob, storage: Storage) -> int:
    """Bytes of one gradient a sharded unit reduces: the lower format unless told otherwise."""
    if job.software.reduces_in_full or job.framework in LOW_WEIGHTS:
        return storage.gradient
    return job.precision.activation_dtype.bytes
