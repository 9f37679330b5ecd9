"""All that is done on a GPU, with its answers on record and a CPU that computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from profiled import cases, operator_rows
from recorded_gpu import RECORDS, RecordedNvml, a_gpu_here

from predictor.cli.main import main
from predictor.measure.profiler import session
from predictor.measure.profiler.families import BY_NAME
from predictor.measure.profiler.nvml import Sensors
from predictor.measure.profiler.session import SLOWED, Request, profile
from predictor.measure.profiler.verify import compare
from predictor.measure.profiler.verify.networks import CANDIDATES
from predictor.measure.profiler.verify.steps import devices
from profiles import joined
from profiles.check import check

DEVICE = "h100-sxm5-80gb"
SMALL = tuple(replace(c, batch_size=4) for c in CANDIDATES if c.name in ("bert", "recommender"))
FORMATS = {"fp32", "tf32", "fp16", "bf16", "mixed_fp16_fp32", "mixed_bf16_fp32", "mixed_fp8_bf16"}
RECORD = RECORDS["a10g_idle"]  # power, clocks and heat; the name is another's


@pytest.fixture(autouse=True)
def few(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shapes and networks that a CPU gets through in seconds."""
    small = [
        case
        for family, dtype in (("gemm", "fp32"), ("gemm", "bf16"), ("layer norm", "bf16"))
        for case in cases(BY_NAME[family], dtype, 3)
    ]
    monkeypatch.setattr(session, "ordered", lambda *_: iter(small))
    monkeypatch.setattr(compare, "NETWORKS", SMALL)
    joined.forget()
    yield
    joined.forget()


def sensors(**changes: list[Any]) -> Sensors:
    return Sensors(RecordedNvml(RECORD, **changes), None, 0)


def test_from_the_first_row_to_the_page(tmp_path: Path) -> None:
    root = tmp_path / "gpu"
    with a_gpu_here(DEVICE, sensors()):
        summary = profile(Request(device="cuda:0", out=root, minutes=1.0))
        name, left = compare.trained(root, "cuda:0", minutes=5.0)
    assert (summary.device, name, left) == (DEVICE, DEVICE, 0)
    [told] = json.loads((root / "manifest.json").read_text())
    assert (told["driver"], told["ecc"]) == ("515.105.01", True)
    assert told["sensors"]["power_limit_w"]["median"] == pytest.approx(300.0)
    assert check(root) == []
    assert devices(root) == [DEVICE]
    joined.forget()
    said = CliRunner().invoke(main, ["profiles", "report", str(root), "--format", "json"])
    assert said.exit_code == 0, said.output
    page = json.loads(said.stdout)
    found = {(step["network"], step["precision"]) for step in page["steps"]}
    assert found == {(c.name, precision) for c in SMALL for precision in FORMATS}
    stages = ("before_any_row_of_the_device", "from_its_tables", "after_one_run", "energy")
    assert all(step["errors"][stage] is not None for step in page["steps"] for stage in stages)
    assert len(page["speed_ups"]) == len(SMALL) * (len(FORMATS) - 1)
    kept = CliRunner().invoke(main, ["profiles", "add", str(root)])
    assert kept.exit_code == 0, kept.output
    assert DEVICE in kept.stdout


def test_heat_in_the_midst_of_a_run_spoils_its_rows_alone(tmp_path: Path) -> None:
    cool_then_hot_then_cool = [0x1] * 4 + [0x24] * 3 + [0x1]
    with a_gpu_here(DEVICE, sensors(reasons=cool_then_hot_then_cool)):
        summary = profile(Request(device="cuda:0", out=tmp_path, minutes=1.0))
    assert summary.refused[SLOWED] == 3
    assert sum(summary.operators.values()) == len(operator_rows(tmp_path)) - sum(
        summary.refused.values()
    )
