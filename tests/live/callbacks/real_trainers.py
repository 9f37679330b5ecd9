"""Small trainings with real trainers, and the face of a DeepSpeed engine."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from predictor.integrations import huggingface

GPU = "a100-sxm4-80gb"


def network_of(package: Any) -> Any:
    class Network(package.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.layer(batch[0]).mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Network()


def fit(package: Any, directory: Path, callback: Any, **settings: Any) -> None:
    data = DataLoader(TensorDataset(torch.randn(160, 4)), batch_size=2)
    trainer = package.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        callbacks=[callback],
        enable_model_summary=False,
        default_root_dir=directory,
        **settings,
    )
    trainer.fit(network_of(package), data, DataLoader(TensorDataset(torch.randn(4, 4))))


def hugging_face(directory: Path, **settings: Any) -> Any:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        vocab_size=32,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    rows = [{"input_ids": torch.zeros(4, dtype=torch.long), "labels": 0} for _ in range(80)]
    arguments = TrainingArguments(
        output_dir=str(directory / "out"),
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        per_device_eval_batch_size=1,
        **settings,
    )
    callback = huggingface.PrecisionTimeCallback("bert-base", gpu=GPU, seq_len=128)
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        callbacks=[callback],
    )
    trainer.train()
    return callback._follower._trainer


class Engine:
    """The attributes of DeepSpeedEngine that are used, and its step at the border of a batch."""

    global_rank, world_size, global_steps, micro = 0, 4, 0, 0
    module = types.SimpleNamespace(config=types.SimpleNamespace(_name_or_path="bert-large"))

    def train_micro_batch_size_per_gpu(self) -> int:
        return 8

    def gradient_accumulation_steps(self) -> int:
        return 2

    def fp16_enabled(self) -> bool:
        return True

    def bfloat16_enabled(self) -> bool:
        return False

    def zero_optimization_stage(self) -> int:
        return 2

    def step(self) -> str:
        self.micro += 1
        self.global_steps = self.micro // 2
        return "stepped"

    def save_checkpoint(self, where: str) -> bool:
        return True
