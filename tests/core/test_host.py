"""Host time: what launching costs, and how it joins device time."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import profiles
from predictor.estimate.measurement import measurement
from predictor.graphs.catalog import entry_of
from predictor.job.training_job import TrainingJob
from predictor.physics.job_graph import job_graph, storage_of
from predictor.physics.optimizer import optimizer_rule, update_launches
from predictor.physics.step import StepModel, busy_s, host_rates

SMALL = TrainingJob(model="resnet50", precision="amp", gpu="h100", batch_size=1)
SECONDS = st.floats(1e-6, 1e3)


@given(device_s=SECONDS, host_s=SECONDS)
def test_two_that_overlap_take_between_the_longer_and_both(device_s: float, host_s: float) -> None:
    together = busy_s(device_s, host_s)
    assert max(device_s, host_s) <= together * (1 + 1e-9)
    assert together <= busy_s(device_s, host_s, synchronous=True) * (1 + 1e-9)
    assert busy_s(device_s, host_s, synchronous=True) == pytest.approx(device_s + host_s)


def test_every_framework_that_a_job_may_name_has_rates_of_its_own() -> None:
    folder = Path(profiles.__file__).parent
    named = yaml.safe_load((folder / "frameworks.yaml").read_text())["patterns"]
    assert set(named) <= set(yaml.safe_load((folder / "host.yaml").read_text())["frameworks"])


def test_tensorflow_chooses_boxes_on_the_host_whatever_the_precision(steps: StepModel) -> None:
    job = TrainingJob(model="mask-rcnn-r50-fpn", precision="fp32", gpu="v100", batch_size=4)
    found = []
    for precision in ("fp32", "amp"):
        one, four = (
            steps.price(job.but(framework="tensorflow2", batch_size=n, precision=precision))
            for n in (1, 4)
        )
        found.append(four.host_s - one.host_s)
        assert four.step_s > four.host_s > 4 * 0.05
    assert found[0] == pytest.approx(found[1], rel=0.02)
    classifier = job.but(model="resnet50", framework="tensorflow2", batch_size=4)
    assert steps.price(classifier).host_s < 0.05


def test_forward_in_python_costs_more_than_backward() -> None:
    rates = host_rates(SMALL)
    assert rates.forward_s > rates.backward_s > rates.cast_s


def test_compiling_and_capturing_take_host_time_away(steps: StepModel) -> None:
    eager, compiled, captured = (
        steps.price(SMALL.but(options=o)).host_s for o in ("", "compile=on", "cuda_graph=on")
    )
    assert captured < compiled < eager


def test_hooks_of_a_checkpoint_that_is_not_reentrant_cost_the_host_more(steps: StepModel) -> None:
    job = TrainingJob(model="sdxl", precision="bf16-mixed", gpu="h100", batch_size=1)
    kept, reentrant, hooked = (
        steps.price(job.but(framework_date=date, options=options)).host_s
        for date, options in ((2025.9, ""), (2025.9, "act_ckpt=on"), (2026.5, "act_ckpt=on"))
    )
    assert hooked - kept == pytest.approx(1.7 * (reentrant - kept), rel=0.1)
    compiled = (
        steps.price(job.but(framework_date=date, options="act_ckpt=on;compile=on")).host_s
        for date in (2025.9, 2026.5)
    )
    assert max(compiled) < reentrant


def test_a_host_is_as_fast_as_those_its_gpu_comes_with() -> None:
    old, new, arm = (host_rates(SMALL.but(gpu=gpu)) for gpu in ("a100", "h100", "gb200"))
    assert new.forward_s < old.forward_s == arm.forward_s
    assert new.update_s < old.update_s
    desktop, server = (host_rates(SMALL.but(gpu=gpu)) for gpu in ("rtx5090", "b200"))
    assert desktop.forward_s < server.forward_s


def test_forward_and_backward_alone_have_no_update(steps: StepModel) -> None:
    whole, stated, left_out = (
        steps.price(SMALL.but(**said))
        for said in ({}, {"optimizer": "none"}, {"options": "optimizer_step=excluded"})
    )
    assert stated == left_out
    assert stated.optimizer_s < whole.optimizer_s / 2  # gradients are still set to zero


def test_eager_pytorch_runs_each_cast_and_each_operation_of_an_update(steps: StepModel) -> None:
    job = TrainingJob(model="vit-base-16", precision="amp", gpu="a100", gpus=8, batch_size=64)
    eager = steps.price(job)
    assert job.software.casts_one_by_one
    assert steps.price(job.but(sharding="fsdp")).memory_s < eager.memory_s
    for said in ("fused=on", "compile=on"):
        assert steps.price(job.but(options=said)).memory_s < 0.95 * eager.memory_s, said
    assert not job.but(source="deeplearningexamples").software.casts_one_by_one
    plain, fused = (
        steps.price(job.but(model="gpt2-124m", seq_len=1024, batch_size=4, **said)).optimizer_s
        for said in (
            {"framework": "pytorch 2.4", "gpu": "t4", "optimizer": "adamw"},
            {"framework": "pytorch 2.4", "gpu": "t4", "optimizer": "adamw_torch_fused"},
        )
    )
    assert 2 * fused < plain < 3 * fused
    assert not job.software.fused_update
    assert job.but(model="gpt2-124m", framework="pytorch 2.9").software.fused_update
    bert = job.but(model="bert-large", framework="nvcr.io/nvidia/pytorch:21.11-py3")
    assert not bert.software.casts_one_by_one


def test_pytorch_2_updates_lists_of_tensors_in_few_launches() -> None:
    job = TrainingJob(model="gpt2-124m", precision="amp", gpu="a100", batch_size=4)
    before, since, apex = (
        update_launches(one, optimizer_rule(one.optimizer or ""), 148)
        for one in (
            job.but(framework="pytorch 1.13", optimizer="adamw"),
            job.but(framework="pytorch 2.0", optimizer="adamw"),
            job.but(framework="pytorch 2.0", optimizer="lamb"),
        )
    )
    assert since < 0.1 * before  # foreach
    assert apex > 148


def test_deepspeed_casts_the_network_whatever_its_stage(steps: StepModel) -> None:
    job = TrainingJob(
        model="gpt2-124m", precision="amp", gpu="v100", gpus=8, batch_size=4, framework="torch 1.6"
    )
    deepspeed = job.but(framework="deepspeed 0.3.0 / torch 1.6.0")
    assert deepspeed.software.half_weights
    assert storage_of(deepspeed).full == 2 < storage_of(job).full
    mixture = job.but(model="qwen3-30b-a3b", framework="nemo automodel")
    assert mixture.but(options="moe_dispatcher=deepep").software.half_weights  # by FSDP2
    assert not mixture.software.half_weights
    assert steps.price(deepspeed).memory_s < 0.9 * steps.price(job).memory_s
    assert not deepspeed.but(options="amp=native").software.half_weights


def test_attention_made_for_ampere_is_slow_on_hopper(steps: StepModel) -> None:
    job = TrainingJob(
        model="llama3-8b", precision="bf16-mixed", gpu="h100", batch_size=1, seq_len=65536
    ).but(framework_date=2024.5)
    for gpu, least in (("h100", 1.4), ("a100", 1.0)):
        old = job.but(gpu=gpu)
        newest = old.but(options="flash_attention=flash_attention_3")
        ratio = steps.price(old).compute_s / steps.price(newest).compute_s
        assert least <= ratio <= 1.75
    assert not job.but(framework_date=2026.5).software.older_attention


def test_attention_before_flash_attention_2_is_half_as_fast_on_ampere(steps: StepModel) -> None:
    job = TrainingJob(
        model="llama3-8b", precision="bf16-mixed", gpu="a100", batch_size=1, seq_len=65536
    ).but(options="flash_attention=on")
    before, after = (steps.price(job.but(framework_date=d)).compute_s for d in (2023.2, 2024.2))
    assert 1.5 < before / after < 2
    first = steps.price(job.but(framework_date=2023.2, gpu="v100")).compute_s
    assert first == steps.price(job.but(framework_date=2024.2, gpu="v100")).compute_s


def test_only_pytorch_has_fused_attention_before_ampere_and_a_slow_one(steps: StepModel) -> None:
    job = TrainingJob(
        model="gpt3-1.3b",
        precision="amp",
        gpu="v100",
        batch_size=2,
        seq_len=2048,
        framework="pytorch",
    )
    assert job.software.fused_attention
    assert job.software.older_attention
    for framework in ("megatron", "nemo", "jax", "llm-foundry"):
        assert not job.but(framework=framework).software.fused_attention, framework
        assert job.but(framework=framework, gpu="a100").software.fused_attention, framework
    spelt, fused = (
        steps.price(job.but(options=f"flash_attention={one}")).compute_s for one in ("off", "on")
    )
    newer = steps.price(job.but(options="flash_attention=flash_attention_3")).compute_s
    assert 1.05 * newer < fused < 0.9 * spelt
    assert not job.but(precision="fp32").software.older_attention  # our tables of FP32 are of it


def test_a_captured_step_launches_no_recurrent_kernels(steps: StepModel) -> None:
    job = TrainingJob(model="rnnt-mlperf", precision="amp", gpu="h100", batch_size=8)
    saved = []
    for one in (job, job.but(batch_size=512)):
        captured = steps.price(one.but(options="cuda_graph=on")).recurrent_s
        assert captured > 0
        saved.append(steps.price(one).recurrent_s - captured)
    assert saved[0] == pytest.approx(saved[1], rel=0.2)  # launches are no longer of a larger batch


def test_a_captured_step_of_kernels_that_wait_little_takes_time(
    steps: StepModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table of one's own may have them."""
    job = TrainingJob(model="rnnt-mlperf", precision="amp", gpu="h100", batch_size=8)
    monkeypatch.setattr("predictor.physics.step.RECURRENT_LAUNCHES_S", 1e-3)
    eager_s, captured_s = (
        steps.price(one).recurrent_s for one in (job, job.but(options="cuda_graph=on"))
    )
    assert captured_s == pytest.approx(eager_s * 8 / 38)


def test_a_tiny_batch_is_bound_by_the_host_and_a_large_one_is_not(steps: StepModel) -> None:
    small, large = steps.price(SMALL), steps.price(SMALL.but(batch_size=512))
    assert small.host_s > small.compute_s
    assert large.host_s < 0.2 * large.compute_s
    assert small.host_s == pytest.approx(large.host_s)


def test_one_process_launches_the_work_of_each_of_its_gpus_in_turn(steps: StepModel) -> None:
    alone = SMALL.but(options="one_process=on")
    four = alone.but(gpus=4)
    assert steps.price(alone).host_s == steps.price(SMALL).host_s
    assert steps.price(four).host_s == pytest.approx(5 * steps.price(SMALL).host_s)
    assert steps.price(four).step_s > 2 * steps.price(SMALL.but(gpus=4)).step_s
    parallel = row(options="dp=torch.nn.DataParallel") | {"throughput": "100"}
    assert measurement(parallel).job.software.one_process


def test_two_stage_detectors_wait_for_the_device(steps: StepModel) -> None:
    job = SMALL.but(model="mask-rcnn-r50-fpn", batch_size=2)
    assert job_graph(job, entry_of(job.model)).synchronous
    assert not job_graph(SMALL, entry_of(SMALL.model)).synchronous
    step = steps.price(job)
    assert step.step_s > step.host_s + step.compute_s


def row(**columns: str) -> dict[str, str]:
    base = {
        "id": "x",
        "model": "resnet50",
        "gpu": "a100-sxm4-80gb",
        "gpus": "8",
        "batch_per_gpu": "64",
        "precision": "mixed_fp16_fp32",
        "throughput": "1000",
        "unit": "images/s",
    }
    return base | columns


def test_mlperf_submissions_are_captured_from_round_one_on() -> None:
    old, new = (
        measurement(
            row(framework="mlperf:PyTorch", source_repo=f"mlcommons/training_results_v{v}")
        ).job
        for v in ("0.7", "2.1")
    )
    assert all(job.software.channels_last for job in (old, new))
    assert (old.software.captured, new.software.captured) == (False, True)
    assert not measurement(row(framework="PyTorch 1.8")).job.options


def test_workers_that_gavel_spreads_have_a_node_each() -> None:
    job = measurement(row(options="placement=unconsolidated")).job
    assert (job.nodes, job.fabric) == (8, "ethernet-10")
    assert measurement(row(options="placement=consolidated")).job.nodes == 1
