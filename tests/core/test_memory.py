"""Memory of a GPU by part: the laws it follows, and what was measured."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import pytest

from predictor.estimate.measurement import shipped
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.memory import as_it_runs, memory_of, stage_memory

GIB = 2**30


def job(model: str = "gpt2", **fields: Any) -> TrainingJob:
    stated: dict[str, Any] = {
        "precision": Precision.MIXED_BF16_FP32,
        "gpu": "a100-sxm4-80gb",
        "gpus": 8,
        "batch_size": 8,
        "optimizer": "adamw",
    }
    return TrainingJob(model=model, **(stated | fields))


def megatron(**fields: Any) -> TrainingJob:
    return job("llama2-7b", framework="megatron", batch_size=1, seq_len=4096, **fields)


# --- measured ----------------------------------------------------------------------------------


def test_median_error_on_measured_peaks_is_below_ten_percent() -> None:
    """Of Megatron-LM's continuous integration, whose last rank logs: the last stage counts."""
    ratios = [
        (
            (m.job, peak),
            stage_memory(m.job, m.job.pipeline_parallel - 1).allocated_bytes / float(peak),
        )
        for m in shipped()
        if (peak := m.row.get("peak_memory_bytes"))
    ]
    errors = [abs(ratio - 1) for _, ratio in ratios]
    counted_once = [abs(ratio - 1) for ratio in dict(ratios).values()]
    assert len(errors) == 611
    assert median(errors) <= 0.08
    assert mean(errors) <= 0.12
    assert median(counted_once) <= 0.08


def test_jobs_that_ran_are_predicted_to_fit() -> None:
    """But for a source whose rows leave to a recipe what is computed again."""
    jobs = {m.job for m in shipped() if m.source != "megatron-bridge"}
    fitting = sum(memory_of(job).total_bytes <= job.hardware.memory_bytes for job in jobs)
    assert len(jobs) > 5000
    assert fitting / len(jobs) >= 0.97


# --- states ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "framework", "weights", "gradients", "optimizer"),
    [
        (Precision.FP32, "pytorch", 4, 4, 8),
        (Precision.BF16, "pytorch", 2, 2, 4),
        (Precision.MIXED_BF16_FP32, "pytorch", 4, 4, 8),
        (Precision.MIXED_BF16_FP32, "megatron", 2, 4, 12),
        (Precision.MIXED_FP16_FP32, "megatron", 2, 2, 12),
    ],
)
def test_adam_takes_these_bytes_a_parameter(
    precision: Precision, framework: str, weights: int, gradients: int, optimizer: int
) -> None:
    found = memory_of(job(precision=precision, framework=framework))
    parameters = 124_439_808
    assert found.weights_bytes == pytest.approx(weights * parameters, rel=1e-3)
    assert found.gradients_bytes == pytest.approx(gradients * parameters, rel=1e-3)
    assert found.optimizer_bytes == pytest.approx(optimizer * parameters, rel=1e-3)


def test_sgd_keeps_half_the_state_of_adam() -> None:
    adam, sgd = memory_of(job()), memory_of(job(optimizer="sgd"))
    assert sgd.optimizer_bytes == adam.optimizer_bytes / 2


def test_each_level_of_zero_divides_one_state_more() -> None:
    whole = memory_of(job())
    one, two, three = (memory_of(job(sharding=f"zero{level}")) for level in (1, 2, 3))
    masters = whole.weights_bytes  # of a network that is cast to 16 bits itself
    assert one.optimizer_bytes == pytest.approx((whole.optimizer_bytes + masters) / 8)
    assert one.gradients_bytes == pytest.approx(whole.gradients_bytes / 2)
    assert two.gradients_bytes == pytest.approx(whole.gradients_bytes / 2 / 8)
    assert two.weights_bytes == one.weights_bytes == pytest.approx(masters / 2)
    assert one.casts_bytes == two.casts_bytes == 0
    assert three.weights_bytes == pytest.approx(whole.weights_bytes / 8)
    assert memory_of(job(sharding="fsdp")) == three


def test_only_autocast_keeps_lower_copies_of_weights() -> None:
    assert memory_of(job()).casts_bytes > 0
    assert memory_of(job(framework="megatron")).casts_bytes == 0
    assert memory_of(job(precision=Precision.BF16)).casts_bytes == 0


# --- activations -------------------------------------------------------------------------------


def test_activations_grow_with_the_batch_and_states_do_not() -> None:
    small, large = memory_of(job(batch_size=4)), memory_of(job(batch_size=8))
    assert large.activations_bytes == pytest.approx(2 * small.activations_bytes, rel=1e-3)
    assert large.optimizer_bytes == small.optimizer_bytes


def test_fused_attention_keeps_no_scores() -> None:
    """Korthikanti et al. arXiv 2205.05198: 34 bytes a token and width, plus 5 a score."""
    plain, fused = (
        memory_of(megatron(gpus=1, options={"flash_attention": on})) for on in ("off", "on")
    )
    scores = 32 * 32 * 4096 * 4096
    saved = plain.activations_bytes - fused.activations_bytes
    assert saved == pytest.approx(2 * scores, rel=0.15)  # Llama has no dropout


def test_a_gpt_layer_keeps_what_the_literature_counts() -> None:
    shape = {"layers": "24", "hidden": "1024", "heads": "16", "vocab": "50304"}
    fields = {"framework": "megatron", "gpus": 1, "batch_size": 4, "seq_len": 1024}
    fields["options"] = {"flash_attention": "off"}
    deep = memory_of(job("gpt-style", variant=shape, **fields))
    shallow = memory_of(job("gpt-style", variant=shape | {"layers": "12"}, **fields))
    rows, hidden = 4 * 1024, 1024
    layer = rows * hidden * (34 + 5 * 16 * 1024 / hidden)
    found = (deep.activations_bytes - shallow.activations_bytes) / 12
    assert found == pytest.approx(layer, rel=0.03)


@pytest.mark.parametrize("model", ["gpt2", "bert-large", "resnet50", "llama2-7b"])
def test_checkpointing_keeps_less(model: str) -> None:
    whole = memory_of(job(model))
    less = memory_of(job(model, options={"act_ckpt": "full"}))
    assert less.activations_bytes < 0.5 * whole.activations_bytes
    assert less.total_bytes < whole.total_bytes


@pytest.mark.parametrize("model", ["whisper-large-v3", "detr-resnet-50", "flux.1-dev"])
def test_checkpointing_never_holds_all_alike_layers_of_a_recording(model: str) -> None:
    whole, less = (memory_of(job(model, options={"act_ckpt": how})) for how in ("off", "full"))
    held = less.activations_bytes + less.workspace_bytes
    assert held < 0.5 * (whole.activations_bytes + whole.workspace_bytes)


def test_selective_checkpointing_lies_between_none_and_full() -> None:
    none, selective, full = (
        memory_of(job(options={"act_ckpt": how, "flash_attention": "off"})).activations_bytes
        for how in ("off", "selective", "full")
    )
    assert full < selective < none


# --- split models ------------------------------------------------------------------------------


def test_the_first_stage_holds_a_set_of_activations_for_each_stage() -> None:
    split = megatron(gpus=8, pipeline_parallel=4, grad_accum=8)
    first, last = stage_memory(split, 0), stage_memory(split, 3)
    assert first.activations_bytes > 2.5 * last.activations_bytes
    assert memory_of(split) == max(first, last, key=lambda m: m.total_bytes)


def test_no_more_sets_are_in_flight_than_there_are_micro_batches() -> None:
    one = stage_memory(megatron(gpus=8, pipeline_parallel=4, grad_accum=1), 0)
    many = stage_memory(megatron(gpus=8, pipeline_parallel=4, grad_accum=4), 0)
    assert many.activations_bytes == pytest.approx(4 * one.activations_bytes, rel=1e-6)
    more = stage_memory(megatron(gpus=8, pipeline_parallel=4, grad_accum=64), 0)
    assert more.activations_bytes == many.activations_bytes


def test_interleaving_holds_more_than_one_chunk_a_stage() -> None:
    plain = megatron(gpus=8, pipeline_parallel=4, grad_accum=8)
    chunks = plain.but(options=(("num_layers_per_virtual_pipeline_stage", "2"),))
    assert stage_memory(chunks, 0).activations_bytes > stage_memory(plain, 0).activations_bytes


def test_tensor_parallelism_divides_weights_and_sequence_parallelism_the_rest() -> None:
    whole, split = memory_of(megatron(gpus=8)), memory_of(megatron(gpus=8, tensor_parallel=4))
    assert split.weights_bytes == pytest.approx(whole.weights_bytes / 4, rel=0.01)
    shared = memory_of(megatron(gpus=8, tensor_parallel=4, options={"sequence_parallel": "on"}))
    assert whole.activations_bytes / 4 < split.activations_bytes < whole.activations_bytes
    assert shared.activations_bytes == pytest.approx(whole.activations_bytes / 4, rel=0.02)


def test_context_parallelism_divides_activations() -> None:
    whole = memory_of(megatron(gpus=8, options={"flash_attention": "on"}))
    split = memory_of(megatron(gpus=8, context_parallel=2, options={"flash_attention": "on"}))
    assert split.activations_bytes == pytest.approx(whole.activations_bytes / 2, rel=0.01)


def test_the_total_is_the_sum_of_its_parts() -> None:
    parts = memory_of(job()).as_dict()
    total = parts.pop("total_bytes")
    assert total == pytest.approx(sum(parts.values()))
    assert all(value >= 0 for value in parts.values())
    assert memory_of(job()).allocated_bytes == total - parts["framework_bytes"]


def test_a_global_batch_that_does_not_fit_is_accumulated() -> None:
    """FlashAttention's README: GPT-3 2.7B on 8 A100, 512 sequences of 2,048 tokens a step."""
    stated = {"gpu": "a100-sxm4-80gb", "gpus": 8, "seq_len": 2048, "framework": "pytorch"}
    asked = TrainingJob(
        model="gpt3-2.7b", precision=Precision.MIXED_BF16_FP32, global_batch_size=512, **stated
    )
    runs = as_it_runs(asked)
    assert memory_of(runs).total_bytes < asked.hardware.memory_bytes < memory_of(asked).total_bytes
    assert runs.micro_steps > 1
    assert runs.software == asked.software
    assert runs.step_samples == asked.step_samples
    known = asked.but(global_batch_size=None, batch_size=64)
    assert as_it_runs(known).software.recompute == "layers"


def test_megatron_accumulates_a_global_batch_and_computes_nothing_again_unasked() -> None:
    asked = megatron().but(batch_size=None, global_batch_size=512)
    runs = as_it_runs(asked)
    assert memory_of(runs).total_bytes < asked.hardware.memory_bytes < memory_of(asked).total_bytes
    assert runs.micro_steps > 1
    assert runs.software == asked.software
    assert as_it_runs(megatron(gpus=1).but(batch_size=64)) == megatron(gpus=1).but(batch_size=64)


def test_fully_sharded_weights_of_a_stage_are_kept_between_micro_batches() -> None:
    piped = job("llama2-7b", sharding="fsdp", pipeline_parallel=2, gpus=16, batch_size=1)
    parameters = 6.74e9 / 2
    kept = memory_of(piped).as_dict()
    flat = memory_of(piped.but(pipeline_parallel=1)).as_dict()
    held = {name: kept[name] - flat[name] for name in kept}
    assert max(held.values()) > 1.5 * parameters, held
