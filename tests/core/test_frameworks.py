"""Frameworks and their era, from the ways sources write them."""

from __future__ import annotations

import pytest

from predictor.estimate.measurement import measurement
from predictor.job.frameworks import framework_of, parse_framework, submission_options
from predictor.job.training_job import TrainingJob


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pytorch", "pytorch"),
        ("PyTorch 1.7", "pytorch"),
        ("deepspeed", "pytorch"),
        ("tensorflow-1.15", "tensorflow1"),
        ("tensorflow 2.4", "tensorflow2"),
        ("mxnet", "mxnet"),
        ("paddle", "paddlepaddle"),
        ("nemo (pytorch)", "nemo"),
        ("NeMo AutoModel 26.02", "pytorch"),
        ("automodel", "pytorch"),
        ("llm.c", "megatron"),
        ("megatron-lm pytorch", "megatron"),
        ("llm-foundry", "llm-foundry"),
        ("jax/flax", "jax"),
        ("torchtitan", "pytorch"),
        ("llama-factory", "pytorch"),
        ("megatron-bridge", "megatron"),
        ("transformer_engine", "pytorch"),
        ("paddlenlp", "paddlepaddle"),
        ("", "pytorch"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert parse_framework(text).name == name


@pytest.mark.parametrize("text", ["nanotron", "trl 0.26", "axolotl", "open_clip", "levanter"])
def test_trainers_may_stand_for_what_they_are_made_of(text: str) -> None:
    assert framework_of(text).name == ("jax" if text == "levanter" else "pytorch")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("resnet50", "mxnet"),
        ("unet3d-mlperf", "mxnet"),
        ("dlrm-dcnv2", "hugectr"),
        ("bert-large", "pytorch"),
        ("gpt3-175b", "nemo"),
    ],
)
def test_one_submission_of_several_frameworks_is_told_apart_by_the_network(
    model: str, name: str
) -> None:
    assert parse_framework("mlperf: mxnet, pytorch, hugectr", model=model).name == name


def test_container_release_is_a_date() -> None:
    assert parse_framework("pytorch 21.06").date == pytest.approx(2021.5)
    assert parse_framework("pytorch", "container=nvcr.io/nvidia/pytorch:19.03-py3").date == (
        pytest.approx(2019.25)
    )


@pytest.mark.parametrize(
    ("text", "options", "build"),
    [
        ("pytorch 1.12.0a0+8a1a93a", "", "nvidia"),
        ("pytorch 2.4.0a0+07cecf4168.nv24.05", "", "nvidia"),
        ("nvcr.io/nvidia/pytorch:22.06-py3", "", "nvidia"),
        ("PyTorch NGC21.04", "", "nvidia"),
        ("pytorch", "container=22.06", "nvidia"),
        ("pytorch 1.12.1+cu113", "", ""),
        ("pytorch 1.13.0a0+git664058f", "", ""),
        ("pytorch", "container=rocm6.2_ubuntu22.04_py3.10", ""),
        ("pytorch", "container=me/train:23.04", ""),
        ("pytorch 2.6", "", ""),
    ],
)
def test_builds_of_nvidia_are_known_by_their_numbers(text: str, options: str, build: str) -> None:
    assert dict(parse_framework(text, options).options).get("build", "") == build


def test_a_build_stays_with_a_job_and_may_be_contradicted() -> None:
    job = TrainingJob(
        model="bert-base", precision="fp32", gpu="a100", batch_size=8, options="container=23.07"
    )
    assert job.software.tf32_products
    assert "images" in job.software.setting("tf32_products").reason
    assert job.but(gpus=2).software.tf32_products
    assert not job.but(options="container=23.07;build=upstream").software.tf32_products


def test_a_measured_row_says_its_build() -> None:
    row = {"model": "bert-base", "gpu": "a100", "gpus": "1", "precision": "fp32", "id": "one"}
    row |= {"batch_per_gpu": "8", "iteration_s": "0.1", "framework": "pytorch 1.12.0a0+8a1a93a"}
    assert measurement(row).job.software.tf32_products
    assert not measurement(row | {"framework": "pytorch 1.13"}).job.software.tf32_products


@pytest.mark.parametrize(
    ("text", "repository", "captured"),
    [
        ("mlperf:pytorch", "github:mlcommons/training_results_v0.7", False),
        ("mlperf:pytorch NGC23.04", "github:mlcommons/training_results_v0.7", False),
        ("mlperf:pytorch", "github:mlcommons/training_results_v1.0", True),
        ("mlperf:pytorch NGC23.04", "results of a vendor", True),
        ("mlperf:MXNet NVIDIA Release 20.06", "results of a vendor", False),
        ("mlperf:pytorch", "results of a vendor", True),
        ("pytorch NGC23.04", "results of a vendor", False),
    ],
)
def test_a_submission_s_steps_are_captured_from_round_1_on(
    text: str, repository: str, captured: bool
) -> None:
    options = submission_options(text, repository, parse_framework(text).date)
    assert (options.get("cuda_graph") == "on") is captured


def test_nvidia_s_submissions_on_blackwell_run_the_newest_attention() -> None:
    row = {
        "model": "stable-diffusion-v2-unet",
        "gpus": "8",
        "precision": "mixed_fp16_fp32",
        "id": "one",
    }
    row |= {
        "batch_per_gpu": "32",
        "iteration_s": "0.1",
        "framework": "mlperf:PyTorch NVIDIA Release 25.04",
    }
    assert not measurement(row | {"gpu": "b200"}).job.software.older_attention
    assert measurement(row | {"gpu": "h100"}).job.software.older_attention
    assert measurement(
        row | {"gpu": "b200", "framework": "pytorch 2.6"}
    ).job.software.older_attention


def test_the_container_decides_over_the_version() -> None:
    assert parse_framework("torch 1.0", "container=22.01").date == pytest.approx(2022 + 1 / 12)


def test_later_versions_are_later_dates() -> None:
    dates = [parse_framework(f"torch {v}").date for v in ("1.4", "1.9", "1.13", "2.1")]
    assert None not in dates
    assert dates == sorted(set(dates), key=float)  # type: ignore[arg-type]


def test_a_library_s_version_is_a_date_and_the_latest_named_counts() -> None:
    assert parse_framework("transformers 4.12").date == pytest.approx(2021.8)
    assert parse_framework("deepspeed 0.3, torch 2.1").date == pytest.approx(2023.75)


@pytest.mark.parametrize("text", ["pytorch", "", "tensorflow", "batch 19.33", "lr=20.13"])
def test_no_release_no_date(text: str) -> None:
    assert parse_framework(text).date is None
