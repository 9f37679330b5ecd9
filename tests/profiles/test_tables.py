"""Loaders refuse malformed files by name, conventions count what they say, coverage finds holes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from import_profiles import import_directory

from profiles.check import check
from profiles.conventions import DIM_FIELDS, SHAPE_FIELDS, work
from profiles.coverage import collective_coverage, coverage
from profiles.errors import ProfileDataError
from profiles.tables import models, operators

Row = dict[str, str]
WriteTables = Callable[..., Path]


def _work(op: str, direction: str, dtype: str, params: str, **dims: float) -> tuple[float, float]:
    arrays = {name: np.array([dims.get(name, np.nan)]) for name in DIM_FIELDS}
    words = [np.array([word]) for word in (op, direction, dtype, params)]
    flops, moved = work(words[0], words[1], words[2], words[3], arrays)
    return float(flops[0]), float(moved[0])


@pytest.mark.parametrize(
    ("op", "direction", "dtype", "params", "dims", "flops", "moved"),
    [
        ("gemm", "fwd", "fp32", "", {"m": 2, "n": 3, "k": 5, "batch": 1}, 60, 31 * 4),
        ("gemm", "bwd", "fp16", "", {"m": 2, "n": 3, "k": 5, "batch": 1}, 120, 62 * 2),
        ("batched_gemm", "fwd", "bf16", "", {"m": 2, "n": 3, "k": 5, "batch": 7}, 420, 434),
        ("elementwise", "fwd", "fp32", "func=add;operands=2", {"elements": 10}, 0, 120),
        ("elementwise", "bwd", "fp32", "func=relu", {"elements": 10}, 0, 120),
        ("elementwise", "fwd", "fp16", "func=dropout", {"elements": 10}, 0, 50),
        ("elementwise", "bwd", "fp32", "func=mul;operands=1", {"elements": 10}, 0, 80),
        ("layernorm", "bwd", "fp16", "", {"elements": 10}, 0, 80),
        ("batchnorm", "fwd", "fp32", "", {"elements": 10}, 0, 120),
        (
            "attention",
            "fwd",
            "bf16",
            "causal=1;kv_heads=2",
            {"batch": 2, "heads": 4, "head_dim": 8, "seq_len": 16},
            4 * 2 * 4 * 16 * 16 * 8 / 2,
            (2 * 2 * 4 + 2 * 2 * 2) * 16 * 8 * 2,
        ),
        (
            "rnn",
            "fwd",
            "fp32",
            "cell=lstm;hidden=4;layers=1;input_gemm=excluded",
            {"batch": 3, "seq_len": 5},
            2 * 3 * 5 * 4 * 4 * 4,
            (4 * 16 + 8 * 60) * 4,
        ),
    ],
)
def test_flops_and_bytes_follow_the_written_conventions(
    op: str,
    direction: str,
    dtype: str,
    params: str,
    dims: dict[str, float],
    flops: float,
    moved: float,
) -> None:
    assert _work(op, direction, dtype, params, **dims) == (flops, moved)


def test_strided_pointwise_convolution_reads_a_quarter_of_its_input() -> None:
    image = {
        "in_n": 1,
        "in_c": 8,
        "in_h": 4,
        "in_w": 4,
        "out_c": 8,
        "kernel_h": 1,
        "kernel_w": 1,
        "pad_h": 0,
        "pad_w": 0,
        "groups": 1,
    }
    flops, moved = _work("conv2d", "fwd", "fp32", "", **image, stride_h=2, stride_w=2)
    assert flops == 2 * 4 * 8 * 8
    assert moved == (32 + 64 + 32) * 4


def test_every_operator_has_a_rule_for_flops_and_bytes() -> None:
    for op, names in SHAPE_FIELDS.items():
        params = "cell=gru;hidden=8;layers=1" if op == "rnn" else ""
        flops, moved = _work(op, "fwd", "fp32", params, **dict.fromkeys(names, 4.0))
        assert flops >= 0, op
        assert moved > 0, op


def test_two_models_of_one_name_are_refused_naming_both_files(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a.yaml").write_text("one: {aliases: [same_name], family: f}\n", encoding="utf-8")
    (folder / "b.yaml").write_text("two: {aliases: [Same-Name], family: f}\n", encoding="utf-8")
    with pytest.raises(ProfileDataError, match=r"a\.yaml.*b\.yaml"):
        models(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id,source", "id,origin", "columns are"),
        ("4096 4096 4096 1", "4096 4096 4096", "shape that is not m n k batch"),
        (",gemm,", ",conv,", "operator 'conv' is not one of"),
        (",1500,", ",", "rows have"),
        (",test,", ",#abc123,", "is not in texts.csv"),
    ],
)
def test_a_damaged_file_is_refused_and_reported(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row, old: str, new: str, message: str
) -> None:
    import_directory(write_tables(operators=[operator_row]), tmp_path / "out")
    path = tmp_path / "out" / "operators" / "v100-sxm2-16gb.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ProfileDataError, match=message):
        operators(tmp_path / "out")
    assert [p.table for p in check(tmp_path / "out")] == ["operators"]


def test_check_finds_a_row_that_was_edited_against_physics(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    import_directory(write_tables(operators=[operator_row]), tmp_path / "out")
    assert check(tmp_path / "out") == []
    path = tmp_path / "out" / "operators" / "v100-sxm2-16gb.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("1500", "15"), encoding="utf-8")
    operators.cache_clear()
    (problem,) = check(tmp_path / "out")
    assert (problem.table, problem.row) == ("operators", "op1")
    assert "of peak FLOP/s" in problem.reason


def test_coverage_counts_rows_and_shows_holes() -> None:
    found = {(c.gpu, c.op, c.dtype, c.direction): c for c in coverage()}
    table = operators()
    v100 = (table.gpu == "v100-sxm2-16gb") & (table.op == "gemm") & (table.dtype == "fp16")
    rows = int(np.count_nonzero(v100 & (table.direction == "fwd")))
    assert found["v100-sxm2-16gb", "gemm", "fp16", "fwd"].rows == rows > 0
    assert found["a100-sxm4-80gb", "conv2d", "fp16", "fwd"].hole
    assert ("v100-sxm2-16gb", "gemm", "bf16", "fwd") not in found
    assert ("a100-sxm4-40gb", "softmax", "tf32", "fwd") not in found


def test_collective_coverage_tells_one_node_from_many() -> None:
    found = {(c.gpu, c.op): c for c in collective_coverage()}
    assert found["v100-pcie-16gb", "all_reduce"].multi_node > 0
    assert found["h200-sxm-141gb", "all_reduce"].single_node > 0
    assert found["h200-sxm-141gb", "all_reduce"].multi_node == 0
