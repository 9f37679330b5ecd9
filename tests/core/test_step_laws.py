"""Laws of the physical step time, whatever the model, precision and GPU."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from math import isclose, isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.operator import Kind, is_forward
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.autocast import LOWER_PRECISION, autocast
from predictor.physics.job_graph import job_graph
from predictor.physics.parallel.stages import Recompute, again
from predictor.physics.step import StepModel, StepTime

MODELS = (
    "resnet50",
    "bert-base",
    "gpt2",
    "gnmt-v2",
    "dlrm",
    "ncf",
    "unet3d-mlperf",
    "lstm-lm",
    "ssd300",
)
SPLITTABLE = ("bert-base", "gpt2")
GPUS = ("k80", "v100", "t4", "a100", "h100")
PRECISIONS = tuple(p for p in Precision if p.matmul_dtype.value not in ("fp8", "fp4"))
RELATIVE = 1e-9


def jobs(models: tuple[str, ...] = MODELS) -> st.SearchStrategy[TrainingJob]:
    """Jobs on one to 64 GPUs, with batches that tensor cores like."""
    return st.builds(
        TrainingJob,
        model=st.sampled_from(models),
        precision=st.sampled_from(PRECISIONS),
        gpu=st.sampled_from(GPUS),
        gpus=st.sampled_from((1, 2, 4, 8, 16, 64)),
        batch_size=st.integers(1, 16).map(lambda n: 8 * n),
        grad_accum=st.sampled_from((1, 1, 2, 4)),
        sharding=st.sampled_from(("ddp", "ddp", "zero1", "zero2", "zero3", "fsdp")),
    )


def at_most(smaller: float, larger: float) -> bool:
    """<= but for the rounding of sums."""
    return smaller <= larger * (1 + RELATIVE)


def same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=RELATIVE)


@given(job=jobs())
def test_parts_are_finite_seconds_that_make_up_the_whole(
    steps: StepModel, job: TrainingJob
) -> None:
    step = steps.price(job)
    assert all(isfinite(v) and v >= 0 for v in asdict(step).values())
    classes = step.tensor_core_s + step.matmul_s + step.recurrent_s + step.memory_s
    assert same(step.compute_s, classes)
    assert at_most(step.exposed_s, step.communication_s)
    assert 0 <= step.tensor_core_share <= 1
    after = step.exposed_s + step.optimizer_s
    assert at_most(max(step.compute_s, step.host_s) + after, step.step_s)
    assert at_most(step.step_s, step.compute_s + step.host_s + step.waiting_s + after)


@given(job=jobs(), more=st.integers(1, 16))
def test_more_samples_never_take_less_time(steps: StepModel, job: TrainingJob, more: int) -> None:
    larger = job.but(batch_size=job.micro_batch_size + 8 * more)
    few, many = steps.price(job), steps.price(larger)
    assert at_most(few.compute_s, many.compute_s)
    assert at_most(few.memory_s, many.memory_s)
    assert at_most(few.host_s, many.host_s)


@given(job=jobs())
def test_twice_the_samples_are_twice_the_flops(steps: StepModel, job: TrainingJob) -> None:
    double = steps.price(job.but(batch_size=2 * job.micro_batch_size))
    assert double.flops == pytest.approx(2 * steps.price(job).flops, rel=1e-6)


@given(job=jobs(), gpus=st.sampled_from((1, 2, 8, 32, 128)))
def test_compute_of_one_gpu_does_not_know_the_others(
    steps: StepModel, job: TrainingJob, gpus: int
) -> None:
    here, there = steps.price(job), steps.price(job.but(gpus=gpus))
    for part in ("compute_s", "tensor_core_s", "host_s", "flops", "bytes"):
        assert getattr(here, part) == getattr(there, part)


@given(job=jobs())
def test_one_gpu_does_not_communicate(steps: StepModel, job: TrainingJob) -> None:
    alone = steps.price(job.but(gpus=1))
    assert alone.communication_s == alone.exposed_s == 0.0


@given(job=jobs(), gpus=st.sampled_from((2, 4, 8, 16, 64)))
def test_several_gpus_pay_for_their_gradients(
    steps: StepModel, job: TrainingJob, gpus: int
) -> None:
    step = steps.price(job.but(gpus=gpus))
    assert step.exposed_s > 0


@given(job=jobs())
def test_more_nodes_never_communicate_faster(steps: StepModel, job: TrainingJob) -> None:
    times = [
        steps.price(job.but(gpus=8 * nodes, gpus_per_node=8)).communication_s
        for nodes in (1, 2, 4, 16)
    ]
    assert all(at_most(a, b) for a, b in pairwise(times))


@given(job=jobs(), accum=st.sampled_from((2, 3, 8)))
def test_accumulation_repeats_compute(steps: StepModel, job: TrainingJob, accum: int) -> None:
    one, many = steps.price(job.but(grad_accum=1)), steps.price(job.but(grad_accum=accum))
    for part in ("compute_s", "host_s", "memory_s", "flops", "bytes"):
        assert same(getattr(many, part), accum * getattr(one, part))
    assert many.optimizer_s == one.optimizer_s


@given(job=jobs(), accum=st.sampled_from((2, 3, 8)))
def test_accumulation_amortises_what_happens_once_a_step(
    steps: StepModel, job: TrainingJob, accum: int
) -> None:
    plain = job.but(sharding="ddp")
    one, many = steps.price(plain.but(grad_accum=1)), steps.price(plain.but(grad_accum=accum))
    assert at_most(many.communication_s, accum * one.communication_s)
    if not entry_has_sparse_weights(job):
        assert same(many.communication_s, one.communication_s)
    assert at_most(many.step_s, accum * one.step_s)
    assert many.step_s > one.step_s


def entry_has_sparse_weights(job: TrainingJob) -> bool:
    return job_graph(job, entry_of(job.model)).sparse_parameters > 0


@given(job=jobs(), precision=st.sampled_from([p for p in Precision if p.mixed]))
def test_mixed_precision_adds_no_products(job: TrainingJob, precision: Precision) -> None:
    entry = entry_of(job.model)
    graph = job_graph(job, entry)

    def products(policy: Precision) -> float:
        typed = autocast(graph, policy, job.hardware)
        eligible = (t.operator for t in typed if t.operator.kind in LOWER_PRECISION)
        return sum(o.flops * o.count for o in eligible)

    mixed = job_graph(job.but(gpu="b200").but(precision=precision), entry)
    assert mixed == graph
    assert products(precision) == products(Precision.FP32)


@given(job=jobs())
def test_gradients_of_a_pure_lower_format_are_not_larger(
    steps: StepModel, job: TrainingJob
) -> None:
    single, half = (
        steps.price(job.but(precision=p)).communication_s for p in (Precision.FP32, Precision.FP16)
    )
    assert at_most(half, single)


@given(job=jobs())
def test_tf32_on_a_gpu_without_it_costs_fp32(steps: StepModel, job: TrainingJob) -> None:
    old = job.but(gpu="v100")
    assert steps.price(old.but(precision=Precision.TF32)) == steps.price(
        old.but(precision=Precision.FP32)
    )


@given(job=jobs(SPLITTABLE), state=st.sampled_from(("on", "full")))
def test_checkpointing_runs_the_forward_pass_again(
    steps: StepModel, job: TrainingJob, state: str
) -> None:
    plain, twice = steps.price(job), steps.price(job.but(options={"act_ckpt": state}))
    graph = job_graph(job, entry_of(job.model))
    early = job.software.recompute_ends_early
    again_ = again(graph, Recompute.LAYERS, ends_early=early)
    layers = sum(graph.operators[i].flops * graph.operators[i].count for i in again_)
    assert twice.flops == pytest.approx(plain.flops + layers * job.grad_accum)
    assert plain.compute_s < twice.compute_s < 1.6 * plain.compute_s
    assert twice.communication_s == plain.communication_s
    assert twice.parameters == plain.parameters


@given(job=jobs(SPLITTABLE))
def test_selective_checkpointing_costs_a_part_of_the_full_one(
    steps: StepModel, job: TrainingJob
) -> None:
    plain, some, all_ = (
        steps.price(job.but(options={"act_ckpt": state})).compute_s
        for state in ("off", "selective", "full")
    )
    assert plain < some < all_


def test_checkpointing_switched_off_costs_nothing(steps: StepModel) -> None:
    job = TrainingJob(model="gpt2", precision=Precision.FP32, gpu="a100", batch_size=8)
    assert steps.price(job.but(options={"act_ckpt": "off"})) == steps.price(job)


@given(job=jobs(SPLITTABLE))
def test_checkpointing_repeats_neither_loss_nor_lookup(job: TrainingJob) -> None:
    graph = job_graph(job, entry_of(job.model))
    twice = [graph.operators[i] for i in again(graph, Recompute.LAYERS)]
    assert twice
    assert not {Kind.LOSS, Kind.EMBEDDING} & {o.kind for o in twice}
    assert all(is_forward(o) and o.count > 1 for o in twice)


@pytest.mark.parametrize(
    ("model", "left_out"), [("llama3-8b", 1), ("gpt2", 0), ("mixtral-8x7b", 0)]
)
def test_recomputation_ends_at_the_last_activation_that_a_gradient_reads(
    model: str, left_out: int
) -> None:
    """Dropout behind the last product, or the weights of experts, read what it gives."""
    job = TrainingJob(model=model, precision=Precision.MIXED_BF16_FP32, gpu="h100", batch_size=1)
    graph = job_graph(job, entry_of(job.model))
    whole, needed = (again(graph, Recompute.LAYERS, ends_early=early) for early in (False, True))
    products = [i for i in whole - needed if graph.operators[i].kind is Kind.GEMM]
    assert needed < whole
    assert len(products) == left_out


def test_recomputation_ends_early_in_today_s_pytorch_and_in_jax() -> None:
    job = TrainingJob(model="llama3-8b", precision=Precision.BF16, gpu="h100", batch_size=1)
    early = {
        name: job.but(framework=name, framework_date=date).software.recompute_ends_early
        for name, date in (("pytorch", None), ("jax", 2023.0), ("megatron", None))
    }
    assert early == {"pytorch": True, "jax": True, "megatron": False}
    older = job.but(framework_date=2025.0)
    assert not older.software.recompute_ends_early
    for sharded in ("full_shard", "hybrid_shard", "on"):  # by checkpoint_wrapper
        assert older.but(options=f"fsdp={sharded}").software.recompute_ends_early


@given(job=jobs(SPLITTABLE), accum=st.sampled_from((1, 2, 4, 16)))
def test_the_bubble_of_a_pipeline_shrinks_with_micro_steps(
    steps: StepModel, job: TrainingJob, accum: int
) -> None:
    split: dict[str, Any] = {"gpus": 4, "pipeline_parallel": 4, "sharding": "ddp"}
    step = steps.price(job.but(**split, grad_accum=accum))
    busy = step.step_s - step.bubble_s - step.optimizer_s
    assert 0 < step.bubble_s <= busy * 3 / accum * (1 + RELATIVE)
    assert steps.price(job.but(pipeline_parallel=1)).bubble_s == 0.0


@given(job=jobs(SPLITTABLE), ranks=st.sampled_from((2, 4)))
def test_a_split_model_computes_less_on_each_gpu_and_talks_more(
    steps: StepModel, job: TrainingJob, ranks: int
) -> None:
    whole: StepTime = steps.price(job.but(gpus=1))
    part = steps.price(job.but(gpus=ranks, tensor_parallel=ranks))
    assert whole.flops / ranks * (1 - RELATIVE) <= part.flops < whole.flops
    assert part.communication_s > 0


@pytest.mark.parametrize(
    ("model", "option"),
    [("resnet50", "channels_last"), ("gpt2", "flash_attention"), ("bert-large", "flash_attention")],
)
def test_other_software_is_priced_by_the_operators_it_changes(
    steps: StepModel, model: str, option: str
) -> None:
    job = TrainingJob(model=model, precision="amp", gpu="a100", gpus=4, batch_size=32)
    on, off = (job.but(options=f"{option}={word}") for word in ("on", "off"))
    for mine, other in ((on, off), (off, on)):
        found = steps.price_instead(mine, steps.price(mine), other)
        assert found == pytest.approx(steps.price(other).step_s, rel=0.03)
        assert found != pytest.approx(steps.price(mine).step_s, rel=0.03)


def test_much_shorter_samples_never_take_less_than_nothing(steps: StepModel) -> None:
    """Of a frozen body not all is computed again, so too much was taken off."""
    job = TrainingJob(
        model="qwen2.5-3b",
        precision=Precision.MIXED_BF16_FP32,
        gpu="a100",
        gpus=8,
        batch_size=64,
        seq_len=32768,
        sharding="zero2",
        options="act_ckpt=on;flash_attention=on;frozen=part",
    )
    whole = steps.price(job)
    for mean in (16384, 1024, 64):
        shorter = steps.price_instead(job, whole, job.but(mean_seq_len=mean))
        assert 0 < shorter < whole.step_s


def test_an_equal_graph_built_anew_has_the_same_price(steps: StepModel) -> None:
    job = TrainingJob(
        model="llama2-7b",
        precision=Precision.MIXED_BF16_FP32,
        gpu="h100",
        gpus=8,
        batch_size=1,
        grad_accum=8,
        pipeline_parallel=4,
    )
    first = steps.price(job)
    graph_of.cache_clear()
    assert steps.price(job) == first


def test_selective_checkpointing_in_pytorch_repeats_every_second_product(steps: StepModel) -> None:
    """As torchtitan chooses; Megatron-LM's repeats attention alone."""
    job = TrainingJob(
        model="llama3-8b",
        precision=Precision.MIXED_BF16_FP32,
        gpu="h100",
        gpus=8,
        batch_size=2,
        seq_len=8192,
    )
    flops = [
        steps.price(job.but(options=(("act_ckpt", how),))).flops for how in ("off", "selective")
    ]
    whole = steps.price(job.but(options=(("act_ckpt", "full"),))).flops
    assert flops[0] * 1.08 < flops[1] < whole
    graph = job_graph(job, entry_of(job.model))
    repeated = [graph.operators[i].kind for i in again(graph, Recompute.OPERATORS)]
    assert Kind.ATTENTION not in repeated
    products = [o for o in graph.operators if is_forward(o) and o.kind is Kind.GEMM]
    assert 0.3 * len(products) < repeated.count(Kind.GEMM) < 0.6 * len(products)


def test_decoders_of_jax_have_one_kernel_of_attention_since_maxtext() -> None:
    job = TrainingJob(model="llama3-8b", precision="bf16-mixed", gpu="h100", batch_size=1)
    fused = [
        job.but(framework="jax", **changed).software.fused_attention
        for changed in ({}, {"framework_date": 2022.0}, {"precision": "fp32"}, {"model": "t5-base"})
    ]
    assert fused == [True, False, False, False]


def test_jax_keeps_activations_in_the_lower_format(steps: StepModel) -> None:
    job = TrainingJob(
        model="t5-v1.1-large", precision=Precision.MIXED_BF16_FP32, gpu="a100", batch_size=32
    )
    eager = job.but(options=(("flash_attention", "off"),))
    jax = eager.but(framework="jax")
    assert steps.price(jax).memory_s < 0.6 * steps.price(eager).memory_s


def test_tensorflow_1_runs_a_kernel_for_each_operation_of_berts_optimizers(
    steps: StepModel,
) -> None:
    def update_s(optimizer: str, framework: str) -> float:
        job = TrainingJob(
            model="bert-large",
            gpu="v100",
            precision="fp32",
            batch_size=8,
            optimizer=optimizer,
            framework=framework,
        )
        return steps.price(job).optimizer_s

    lamb = update_s("lamb", "tensorflow1")
    assert lamb == pytest.approx(update_s("lamb", "tensorflow2") * 184 / 44, rel=0.1)
    assert update_s("adamw", "tensorflow1") == pytest.approx(lamb * 144 / 184, rel=0.1)
    assert update_s("momentum", "tensorflow1") == update_s("momentum", "tensorflow2")
