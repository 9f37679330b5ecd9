"""Peak memory of one GPU of a training job, by part.

ZeRO: Rajbhandari et al. arXiv 1910.02054. Pipeline schedules and activations of transformers:
Narayanan et al. arXiv 2104.04473, Korthikanti et al. arXiv 2205.05198.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

from ...graphs.catalog import ModelEntry, entry_of, overrides
from ...graphs.operator import Graph
from ...job.frameworks import PYTORCH
from ...job.software import OptimizerRule
from ...job.training_job import TrainingJob
from ..job_graph import LOW_WEIGHTS, Storage, cuts_examples, layer_count, storage_of, workload
from ..optimizer import rule_of
from ..parallel.placement import expert_share, place
from ..parallel.stages import Recompute, layer_shares, recompute_of, virtual_stages
from .account import Account, Checkpointing, Part, account_of, account_of_graph

# What a process holds on a GPU beside its tensors: CUDA context and kernels. 1343 MB where Hugging
# Face shows it ("Model training anatomy", after one tensor was placed); CUDA 11.7 and later load
# kernels when they are first used, and hold less.
FRAMEWORK_BYTES = 1343 * 2**20
# cuBLAS workspace of one handle: 32 MiB from Hopper on, 8 MiB before (CUBLAS_WORKSPACE_CONFIG).
CUBLAS_WORKSPACE_BYTES = {True: 32 * 2**20, False: 8 * 2**20}
HOPPER = 9


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU at the moment it holds most.

    ``casts_bytes`` are copies of the weights that autocast makes in the lower format;
    ``optimizer_bytes`` include FP32 masters; ``activations_bytes`` is what autograd keeps of the
    micro-batches in flight, ``workspace_bytes`` what the operator at hand needs on top;
    ``buffers_bytes`` are gradient buckets and gathered weights. ``framework_bytes`` (CUDA context)
    is outside of what ``torch.cuda.max_memory_allocated`` counts.
    """

    weights_bytes: float
    casts_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    workspace_bytes: float
    framework_bytes: float = FRAMEWORK_BYTES

    @property
    def allocated_bytes(self) -> float:
        """What ``torch.cuda.max_memory_allocated`` would say."""
        return self.total_bytes - self.framework_bytes

    @property
    def total_bytes(self) -> float:
        """Sum of all parts."""
        return float(sum(getattr(self, part.name) for part in fields(self)))

    @property
    def states_bytes(self) -> float:
        """What is there before the first micro-batch."""
        return self.total_bytes - self.activations_bytes - self.workspace_bytes

    def as_dict(self) -> dict[str, float]:
        """All parts and their sum, in bytes."""
        return asdict(self) | {"total_bytes": self.total_bytes}


@lru_cache(maxsize=4096)
def memory_of(job: TrainingJob) -> Memory:
    """Memory of the GPU that needs most; raises GraphError where the model has no graph."""
    stages = {0, job.pipeline_parallel - 1}
    return max((stage_memory(job, s) for s in stages), key=lambda m: m.total_bytes)


# Trainers that leave it to the job what is computed again, and networks for which one switch of
# Transformers, diffusers or timm does it. Megatron-LM and NeMo keep less than these rules say:
# their runs need 1.1 of the memory they had.
TRAINERS = frozenset({PYTORCH, "llm-foundry", "jax"})
SWITCHED = frozenset({"gpt", "transformer", "vision-transformer", "generative"})
# How state is shared where nothing is said of it and no GPU holds it; by NeMo's recipes in any case
# (distributed_fused_adam, use_distributed_optimizer).
SHARED = dict.fromkeys(TRAINERS, "fsdp") | {"megatron": "zero1", "nemo": "zero1"}
# Tokens at which trainers cut the examples that decoders are tuned on, where nothing is said:
# cutoff_len of LLaMA-Factory and sequence_len of axolotl's recipes; TRL cuts at half as many.
EXAMPLES_CUT_AT = 2048
# Of the memory there is: twice the mean error of these rules (12 %) stays for doubt.
SURELY_TOO_MUCH = 1.25


@lru_cache(maxsize=4096)
def as_it_runs(job: TrainingJob) -> TrainingJob:
    """A job that surely cannot run as it is stated, as it can: leaner, sharded, or on 4 bits.

    The latter two where nothing is said of sharding, and states are most of what is too much, or
    all of it where these rules say too much; the base of adapters comes first. Examples are cut.
    """
    return _made_lean(job, SURELY_TOO_MUCH)


@lru_cache(maxsize=4096)
def as_it_fits(job: TrainingJob, share: float) -> TrainingJob:
    """The same for a job that must fit a share of the memory, by whatever of these it leaves open.

    As it is where none of them, or not even all, makes it fit.
    """
    return _made_lean(job, share)


def _made_lean(job: TrainingJob, most: float) -> TrainingJob:
    usual, unsaid = entry_of(job.model).seq_len, job.seq_len is job.mean_seq_len is None
    if usual and unsaid and cuts_examples(job):
        return _made_lean(job.but(seq_len=min(usual, EXAMPLES_CUT_AT)), most)
    leaner, way = _leaner(job, most), SHARED.get(job.framework)
    if job.sharding is not None or job.data_parallel == 1 or way is None:
        return leaner
    found, have = memory_of(leaner), min(1.0, most) * job.hardware.memory_bytes
    states = 0.0 if most < SURELY_TOO_MUCH else have / 2 if job.framework in TRAINERS else have
    if job.framework == "nemo" or (found.total_bytes > have and found.states_bytes > states):
        if way == "fsdp" and job.software.trains_adapters and job.software.base_bits is None:
            return _made_lean(job.but(options=(*job.options, ("quantized_base", "4bit"))), most)
        return _leaner(job.but(sharding=way), most)
    return leaner


def _leaner(job: TrainingJob, share: float) -> TrainingJob:
    """A transformer that cannot run as it is stated, as it can: accumulating, or checkpointing.

    As few micro-steps as fit where only the global batch is stated, else activation checkpointing
    where nothing is said of it. The same job otherwise: where scores are kept, which these rules
    are less sure of, and where its states alone are too much. Megatron-LM and NeMo accumulate too.
    """
    software, memory = job.software, job.hardware.memory_bytes
    left, unsaid = job.framework in TRAINERS, software.setting("recompute") is None
    alone = job.batch_size is None and job.grad_accum is None
    alone = alone and (unsaid if left else job.framework in LOW_WEIGHTS)
    if not (software.fused_attention and (alone or (left and unsaid))):
        return job
    found, have, most = memory_of(job), min(1.0, share) * memory, share * memory
    switched = entry_of(job.model).group in SWITCHED
    if not switched or not found.states_bytes < most < found.total_bytes:
        return job
    parts = job.accumulating_more() if alone else ()
    fits = next((one for one in parts if memory_of(one).total_bytes < have), None)
    return fits or (job.but(options=(*job.options, ("act_ckpt", "full"))) if left else job)


def stage_memory(job: TrainingJob, stage: int) -> Memory:
    """Memory of a GPU of one pipeline stage, counted from 0."""
    return _of_account(job, entry_of(job.model), storage_of(job), _account(job), stage)


def offloaded_bytes(job: TrainingJob) -> float:
    """Bytes of the layers' activations that a micro-step moves to host memory, and back."""
    return _account(job).body.kept if job.software.offloads_activations else 0.0


def _account(job: TrainingJob) -> Account:
    entry = entry_of(job.model)
    return account_of(
        entry.name,
        overrides(entry, job.variant),
        # what sequence parallelism divides is distinguished in the account
        replace(workload(job, entry), sequence_parallel=False),
        storage_of(job),
        _checkpointing(job),
        job.sequence_parallel,
    )


def memory_of_graph(job: TrainingJob, entry: ModelEntry, graph: Graph) -> Memory:
    """Memory of one GPU with a network that no catalog holds; ``entry`` says what it is."""
    storage = storage_of(job)
    account = account_of_graph(graph, storage, _checkpointing(job))
    return _of_account(job, entry, storage, account, 0)


def _of_account(
    job: TrainingJob, entry: ModelEntry, storage: Storage, account: Account, stage: int
) -> Memory:
    layers = layer_count(job, entry, account.parts.layers)
    inner, peak = _activations(job, account, layers, stage)
    states = states_of(
        job,
        storage,
        rule_of(job, entry),
        account,
        account.parts.stage_weights(stage, layer_shares(job, layers)[stage], job.pipeline_parallel),
        expert_share(job, entry),
    )
    workspace = peak + CUBLAS_WORKSPACE_BYTES[job.hardware.compute_capability[0] >= HOPPER]
    return _at_peak(states, inner, workspace)


def _at_peak(states: States, activations: float, workspace: float) -> Memory:
    """The larger of two moments: early in the backward pass, and the optimizer step."""
    held = Memory(
        weights_bytes=states.weights,
        casts_bytes=0.0,
        gradients_bytes=states.gradients,
        optimizer_bytes=states.optimizer,
        activations_bytes=0.0,
        buffers_bytes=states.buffers,
        workspace_bytes=states.step_workspace,
    )
    backward = replace(
        held,
        casts_bytes=states.casts,
        activations_bytes=activations,
        workspace_bytes=workspace,
        gradients_bytes=states.gradients if states.gradients_stay else 0.0,
    )
    return max(held, backward, key=lambda m: m.total_bytes)


def _checkpointing(job: TrainingJob) -> Checkpointing:
    recompute = recompute_of(job)
    return Checkpointing(recompute is Recompute.LAYERS, recompute is Recompute.ATTENTION)


def _activations(
    job: TrainingJob, account: Account, layers: int, stage: int
) -> tuple[float, float]:
    """Bytes that micro-batches in flight keep on one stage, and what the backward needs on top."""
    stages = job.pipeline_parallel
    first, last = stage == 0, stage == stages - 1
    body = _part_of(account.body, layer_shares(job, layers)[stage])
    if job.software.offloads_activations:  # those of the layer at work and the next one stay
        body = _part_of(body, min(1.0, 2 / max(1, account.parts.layers)))
    parts = [account.start] * first + [body] + [account.end] * last
    before, peak = 0.0, 0.0
    for part in parts:
        peak = max(peak, before + part.peak)
        before += part.kept
    end = account.end.kept if last else 0.0  # its backward follows its forward at once
    more = (before - end) * max(0.0, _in_flight(job, layers, stage) - 1.0)
    return before + more, peak - before


def _part_of(body: Part, share: float) -> Part:
    return Part(body.kept * share, body.kept * share + body.peak - body.kept)


def _in_flight(job: TrainingJob, layers: int, stage: int) -> float:
    """Sets of activations a stage holds at once under 1F1B, interleaved or not.

    Interleaving cuts a stage into chunks: a set of one chunk is that share of a set.
    """
    stages, accum = job.pipeline_parallel, job.micro_steps
    if stages == 1:
        return 1.0
    chunks = virtual_stages(job, layers)
    if chunks == 1:
        return float(min(stages - stage, accum))
    group = job.software.micro_batches_in_a_row or stages
    warm_up = 2 * (stages - stage - 1) + (chunks - 1) * group
    return min(warm_up + 1, accum * chunks) / chunks


# Elements of DeepSpeed's reduce_bucket_size and allgather_bucket_size, each (its JSON reference).
DEEPSPEED_BUCKET = 500_000_000
BITS_IN_BYTE = 8
# 0 is plain data parallelism; FSDP shards as ZeRO-3.
ZERO_LEVEL = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3}
# Units of ZeRO-3 and FSDP that are gathered at once: the one at work and the one prefetched.
GATHERED_UNITS = 2


@dataclass(frozen=True, slots=True)
class States:
    """Bytes that do not depend on the batch.

    ``gradients_stay`` is false where they exist only from their layer's backward to the step.
    ``step_workspace`` is what the optimizer step holds on top.
    """

    weights: float
    casts: float
    gradients: float
    optimizer: float
    buffers: float
    step_workspace: float
    gradients_stay: bool


def states_of(
    job: TrainingJob,
    storage: Storage,
    rule: OptimizerRule,
    account: Account,
    weights: float,
    experts: float,
) -> States:
    """The states of a GPU that holds ``weights`` elements, a share ``experts`` of them experts'.

    Embedding tables that are updated by row are spread over all GPUs and have neither a dense
    gradient nor optimizer state, as in DLRM.
    """
    level = ZERO_LEVEL[job.shards]
    tables = weights * account.sparse / max(1, account.parameters)
    dense = weights - tables
    software = job.software
    trained = account.trainable - account.sparse
    here = dense * trained / max(1, account.parameters - account.sparse)
    kept = BITS_IN_BYTE * storage.weight if software.base_bits is None else software.base_bits
    ranks = shard_ranks(job, experts)
    optimizer_ranks, gradient_ranks, weight_ranks = (
        ranks if level >= least else 1.0 for least in (1, 2, 3)
    )
    state = rule.state_bytes_per_parameter * storage.state_scale + storage.master
    if software.offloads_optimizer:  # what is sharded sends its gradients along
        optimizer_ranks, gradient_ranks = math.inf, math.inf if level else gradient_ranks
    if software.offloads_weights:
        level, weight_ranks, gradient_ranks = 3, math.inf, math.inf
    if rule.layerwise:
        gradient_ranks = math.inf
    unit = GATHERED_UNITS * account.parts.unit_weights if level == 3 else 0.0
    if level == 3 and job.pipeline_parallel > 1:
        unit = dense  # they are kept from one micro-batch to the next
    # what is frozen has no gradient to gather, and travels as it is kept
    gathered = storage.activation if software.base_bits is None else kept / BITS_IN_BYTE
    gathered += storage.gradient / GATHERED_UNITS * here / max(1.0, dense)
    matrices = min(dense, account.matrix_weights * weights / max(1, account.parameters))
    copied = storage.autocast and level < 3 and software.base_bits is None
    return States(
        weights=(dense / weight_ranks + tables / job.gpus) * kept / BITS_IN_BYTE,
        casts=matrices * storage.activation * copied,
        gradients=here * storage.gradient / gradient_ranks,
        optimizer=here * state / optimizer_ranks,
        buffers=_buckets(job, level, here, storage) + min(unit, dense) * gathered,
        step_workspace=here * storage.upcast_gradient / optimizer_ranks,
        gradients_stay=job.data_parallel > 1 or job.micro_steps > 1 or job.framework in LOW_WEIGHTS,
    )


def shard_ranks(job: TrainingJob, experts: float) -> float:
    """GPUs a stage's state is divided among: fewer for experts, which are spread already."""
    instances = job.software.optimizer_copies
    if job.shards == "hsdp":
        instances = place(job).data.nodes
    ranks = max(1, job.data_parallel * job.context_parallel // instances)
    spread = max(1, job.expert_parallel * job.expert_split // job.tensor_parallel)
    return 1 / ((1 - experts) / ranks + experts / max(1.0, ranks / spread))


def _buckets(job: TrainingJob, level: int, dense: float, storage: Storage) -> float:
    """Gradient buckets: torch DDP's copy all gradients, DeepSpeed's a bounded number.

    Megatron-LM and NeMo compute gradients in their bucket.
    """
    if job.data_parallel == 1 or job.framework in LOW_WEIGHTS or level == 3:
        return 0.0
    if level == 0:
        return dense * storage.gradient if job.framework == PYTORCH else 0.0
    return 2 * min(dense, DEEPSPEED_BUCKET) * storage.gradient
