"""Which data set a command trains on, and for how much of it."""

from __future__ import annotations

import pytest

from predictor.errors import JobError
from predictor.estimate.core import steps_of
from predictor.identify.identify import identify
from predictor.identify.stated import Stated
from predictor.job.datasets import dataset_named
from predictor.job.training_job import TrainingJob

TRAIN = "python train.py --model resnet50 --batch-size 64 --amp --epochs 90"
GLUE = (
    "python run_glue.py --model_name_or_path bert-base-cased --do_train --fp16"
    " --max_seq_length 128 --per_device_train_batch_size 32 --num_train_epochs 3"
)


def read(command: str, comment: str = "") -> Stated:
    return identify(script=f"#!/bin/sh\n{command}\n", comment=comment)


def steps(stated: Stated) -> int | None:
    return steps_of(stated.job(gpu="a100-sxm4-80gb", gpus=1))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--dataset imagenet", "imagenet-1k"),
        ("--data-path /data/imagenet22k", "imagenet-22k"),
        ("--data-path /data/imagenet/train", "imagenet-1k"),
        ("--data $DATA/ILSVRC2012", "imagenet-1k"),
        ("--data-dir /mnt/ILSVRC/Data/CLS-LOC/train", "imagenet-1k"),
        ("--dataset CIFAR-100", "cifar100"),
        ("--dataset torch/cifar10", "cifar10"),
        ("--dataset_name glue --dataset_config_name mnli", "mnli"),
        ("--task_name superglue --dataset_name boolq", "boolq"),
        ("--dataset_name tatsu-lab/alpaca", "alpaca"),
        ("--dataset_name wikitext --dataset_config_name wikitext-103-raw-v1", "wikitext-103"),
        ("--data-set IMNET", "imagenet-1k"),
        ("--data coco.yaml", "coco"),
        ("/scratch/me/tiny-imagenet-200", "tiny-imagenet"),
    ],
)
def test_a_data_set_is_known_by_name_part_task_or_directory(words: str, name: str) -> None:
    stated = read(f"{TRAIN} {words}")
    assert stated.values["dataset"] == name
    assert steps(stated) == steps_of(
        TrainingJob(
            model="resnet50",
            precision="amp",
            gpu="a100-sxm4-80gb",
            batch_size=64,
            epochs=90,
            dataset=name,
        )
    )


@pytest.mark.parametrize(
    "words",
    [
        "--dataset birds",
        "--dataset imagenet100",
        "--data-path /data/mycars",
        "--data-path /data/imagenet/subset10",
        "--data-path /data/instructions/ImageNet/train.json",
        "--dataset alpaca,identity",
        "--dataset mnli qqp",
        "--dataset imagenet --fraction 0.1",
        "--dataset imagenet --limit-train-batches 0.1",
        "--dataset imagenet --max-train-batches 2",
    ],
)
def test_data_that_is_not_known_has_no_length_but_a_step(words: str) -> None:
    stated = read(f"{TRAIN} {words}")
    assert "dataset" not in stated.values
    assert any(problem.field == "dataset" for problem in stated.problems)
    assert steps(stated) is None
    assert steps(read(f"{TRAIN} {words}", comment="dataset_size=6400")) == 9000


@pytest.mark.parametrize(
    "words", ["--output-dir /ckpt/imagenet", "--task translation", "--data-path $DATA", "--data ."]
)
def test_what_names_no_data_set_is_none(words: str) -> None:
    stated = read(f"{TRAIN} {words}")
    assert "dataset" not in stated.values
    assert not any(problem.field == "dataset" for problem in stated.problems)


def test_the_commonest_command_of_hugging_face_has_a_length() -> None:
    assert steps(read(f"{GLUE} --task_name mnli")) == 36816  # 3 x 392,702 / 32
    assert steps(read(f"{GLUE} --task_name rte --max_train_samples 1000")) == 94
    assert steps(read(f"{GLUE} --task_name rte --max_train_samples 10000")) == 234  # all 2,490


def test_epochs_that_are_done_do_not_count() -> None:
    stated = read(f"{TRAIN} --resume last.pth --start-epoch 80 --data-path /data/imagenet")
    assert stated.values["epochs"] == 10


def test_a_corpus_is_as_long_as_its_tokens() -> None:
    tokens = dataset_named("openwebtext").tokens
    assert tokens is not None
    job = TrainingJob(
        model="gpt2",
        precision="amp",
        gpu="a100",
        batch_size=8,
        seq_len=512,
        epochs=1,
        dataset="owt",
    )
    assert steps_of(job) == -(-(tokens // 512) // 8)


def test_a_slip_is_told_the_nearest_name() -> None:
    with pytest.raises(JobError, match="imagenet-1k"):
        dataset_named("imagenet-1kk")


def test_comment_and_script_that_name_two_contradict_each_other() -> None:
    stated = read(f"{TRAIN} --dataset cifar10", comment="dataset=imagenet")
    assert stated.contradictions


def test_a_part_of_a_data_set_says_nothing_of_data_of_ones_own() -> None:
    text = "python run_mlm.py --model_name_or_path bert-base-cased --dataset_config_name wikitext-2"
    assert "dataset" not in identify(argv=f"{text} --train_file own/train.txt".split()).values
    named = identify(argv=f"{text} --dataset_name wikitext".split())
    assert named.values["dataset"] == "wikitext-2"


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("--task_name sst2", True),
        ("--task_name sst2 --data_dir $GLUE/SST-2", True),
        ("--task_name sst2 --data_dir glue_data", True),
        ("--task_name sst2 --data_dir $DATA", True),
        ("--task_name sst2 --data_dir ../relations/euadr", False),
        ("--task_name sst2 --data_dir ../relations/$SPLIT", False),
    ],
)
def test_a_task_names_no_data_that_lie_at_a_place_of_another_name(words: str, known: bool) -> None:
    stated = read(f"{GLUE} {words}")
    assert (stated.values.get("dataset") == "sst2") == known
    assert any(problem.field == "dataset" for problem in stated.problems) != known
