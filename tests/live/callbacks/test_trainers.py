"""Real trainers on the CPU: what they tell of themselves, and the steps they really make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from real_trainers import GPU, Engine, fit, hugging_face, network_of
from torch.utils.data import DataLoader, TensorDataset

from predictor.estimate.fitting import Fitted
from predictor.integrations import deepspeed, huggingface, lightning
from predictor.site.step_rate import FILE_NAME, StepReport, read_report

from ..slurm.processes import free_ports

pytestmark = pytest.mark.filterwarnings("default")  # of the frameworks' own


def reported(directory: Path) -> StepReport:
    report = read_report(directory / FILE_NAME)
    assert report is not None
    return report


def test_lightning(fitted: Fitted, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import lightning.pytorch as package

    callback = lightning.PrecisionTimeCallback("resnet50", gpu=GPU)
    fit(
        package,
        directory,
        callback,
        max_epochs=2,
        accumulate_grad_batches=2,
        precision="bf16-mixed",
    )
    said, report = capsys.readouterr().out, reported(directory)
    assert f"resnet50 on 1 x {GPU} at mixed_bf16_fp32" in said
    assert "a step measured" in said
    assert (report.step, report.total_steps) == (80, 80)
    assert report.paused_s > 0  # the evaluation between the epochs
    told = callback._follower._trainer
    assert (told.batch_size, told.grad_accum, told.gpus) == (2, 2, 1)


def test_pytorch_lightning_by_its_old_name(fitted: Fitted, directory: Path) -> None:
    import pytorch_lightning as package

    fit(package, directory, lightning.PrecisionTimeCallback("resnet50", gpu=GPU), max_steps=40)
    assert (reported(directory).step, reported(directory).total_steps) == (40, 40)


def test_lightning_training_that_fails(directory: Path) -> None:
    import lightning.pytorch as package

    class Failing(package.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 40:
                raise ValueError("the user's own")

    data = DataLoader(TensorDataset(torch.randn(160, 4)), batch_size=2)
    trainer = package.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        max_epochs=1,
        callbacks=[lightning.PrecisionTimeCallback(), Failing()],
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    with pytest.raises(ValueError, match="the user's own"):
        trainer.fit(network_of(package), data)
    assert (reported(directory).step, reported(directory).total_steps) == (40, 80)


def test_hugging_face(fitted: Fitted, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = hugging_face(
        directory,
        num_train_epochs=2,
        per_device_train_batch_size=1,
        save_strategy="no",
        gradient_accumulation_steps=2,
        bf16=True,
        eval_strategy="epoch",
    )
    said, report = capsys.readouterr().out, reported(directory)
    assert f"bert-base-uncased on 1 x {GPU} at mixed_bf16_fp32" in said or "bert-base" in said
    assert "a step measured" in said
    assert (report.step, report.total_steps) == (80, 80)
    assert report.paused_s > 0
    assert (told.batch_size, told.grad_accum, told.gpus) == (1, 2, 1)


def test_a_name_in_the_configuration_is_the_model() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8)
    config._name_or_path = "bert-base-uncased"
    assert huggingface.name_of(BertModel(config)) == "bert-base-uncased"


def test_of_two_ranks_one_writes(directory: Path) -> None:
    script = Path(__file__).with_name("gloo_rank.py")
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(script.parents[3]),
    }
    folders = [directory / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, **shared, "RANK": str(rank)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, folder in enumerate(folders)
    ]
    said = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert (reported(folders[0]).step, list(folders[1].iterdir())) == (40, [])
    assert b"a step measured" in said[0][0]
    assert said[1][0] == b""


def test_a_deepspeed_engine(
    fitted: Fitted, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine()
    follower = deepspeed.follow(engine, gpu=GPU, steps=40)
    assert {engine.step() for _ in range(80)} == {"stepped"}
    assert engine.save_checkpoint("here")
    follower.end()
    assert f"bert-large on 4 x {GPU} at mixed_fp16_fp32" in capsys.readouterr().out
    assert (reported(directory).step, reported(directory).total_steps) == (40, 40)


def test_an_engine_of_another_kind_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    deepspeed.follow(object()).end()
    assert "is off" in caplog.text
