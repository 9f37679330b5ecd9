"""The real DeepSpeed on the CPU, where it is installed: `pip install deepspeed`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from predictor.estimate.fitting import Fitted
from predictor.site.step_rate import FILE_NAME, read_report

from ..slurm.processes import free_ports

SCRIPT = Path(__file__).with_name("deepspeed_rank.py")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed"
)
OPTIMIZER = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}


def train(directory: Path, ranks: int = 1, **config: Any) -> list[str]:
    """What each rank printed on stdout; every rank must end well."""
    whole = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": OPTIMIZER,
        "steps_per_print": 10**9,
        **config,
    }
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
        "WORLD_SIZE": str(ranks),
        "LOCAL_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PYTHONPATH": str(SCRIPT.parents[3]),
    }
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, json.dumps(whole)],
            cwd=directory,
            text=True,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0] * ranks, said
    return [out for out, _ in said]


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}, "mixed_bf16_fp32"),
        ({"fp16": {"enabled": True}, "zero_optimization": {"stage": 1}}, "mixed_fp16_fp32"),
        (
            {
                "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
                "zero_optimization": {"stage": 1},
            },
            "mixed_bf16_fp32",
        ),
    ],
    ids=["bf16-zero3", "fp16-zero1", "autocast-zero1"],
)
def test_an_engine_is_followed(
    fitted: Fitted, directory: Path, config: dict[str, Any], precision: str
) -> None:
    (said,) = train(directory, **config)
    assert f"resnet50 on 1 x a100-sxm4-80gb at {precision}" in said
    assert "a step measured" in said
    report = read_report(directory / FILE_NAME)
    assert report is not None
    assert (report.step, report.total_steps) == (40, 40)
    assert report.step_s > 0


def test_of_two_ranks_one_speaks(fitted: Fitted, directory: Path) -> None:
    first, second = train(directory, 2, zero_optimization={"stage": 2}, bf16={"enabled": True})
    assert "resnet50 on 2 x a100-sxm4-80gb at mixed_bf16_fp32" in first
    assert "precision-time" not in second
    report = read_report(directory / FILE_NAME)
    assert report is not None
    assert (report.step, report.total_steps) == (40, 40)
