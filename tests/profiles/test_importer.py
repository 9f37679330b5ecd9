"""The importer keeps every fact, gives the same bytes every time, and refuses with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from import_profiles import import_directory, main

from profiles.check import quarantined
from profiles.storage import sources
from profiles.tables import collectives, measurements, operators

Row = dict[str, str]
WriteTables = Callable[..., Path]


def _files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _varied(row: Row, count: int) -> list[Row]:
    return [{**row, "id": f"op{i}", "n": str(64.0 * i)} for i in range(1, count + 1)]


def test_rows_come_back_as_they_went_in(
    write_tables: WriteTables,
    tmp_path: Path,
    operator_row: Row,
    collective_row: Row,
    measurement_row: Row,
) -> None:
    measurement_row |= {"note": 'quotes " and, commas; é', "peak_memory_bytes": "123456"}
    raw = write_tables(
        operators=[operator_row], collectives=[collective_row], measurements=[measurement_row]
    )
    import_directory(raw, tmp_path / "out")
    assert measurements(tmp_path / "out") == (measurement_row,)
    table = operators(tmp_path / "out")
    assert table.id.tolist() == ["op1"]
    assert table.time_s[0] == pytest.approx(1.5e-3)
    assert table.flops[0] == 2 * 4096**3
    assert table.bytes[0] == 3 * 4096**2 * 2
    ring = collectives(tmp_path / "out")
    assert ring.bus_bytes_per_s[0] == pytest.approx(1.75e9 / 8e-3)
    source = sources(tmp_path / "out")[str(table.source[0])]
    assert (source.repository, source.license) == ("example/made-up", "MIT")


def test_shared_long_texts_are_stored_once_and_read_back(
    write_tables: WriteTables, tmp_path: Path, measurement_row: Row
) -> None:
    note = "a note that is long enough to be stored only once, with its, commas"
    rows = [
        {**measurement_row, "id": f"me{i}", "note": note, "epochs": str(i)} for i in range(1, 6)
    ]
    import_directory(write_tables(measurements=rows), tmp_path / "out")
    assert {row["note"] for row in measurements(tmp_path / "out")} == {note}
    stored = (tmp_path / "out" / "measurements" / "made-up.csv").read_text(encoding="utf-8")
    assert note not in stored


def test_same_rows_give_the_same_bytes_in_any_order(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row, measurement_row: Row
) -> None:
    rows = _varied(operator_row, 12)
    first = write_tables(operators=rows, measurements=[measurement_row], folder="first")
    second = write_tables(operators=rows[::-1], measurements=[measurement_row], folder="second")
    import_directory(first, tmp_path / "a")
    import_directory(second, tmp_path / "b")
    import_directory(second, tmp_path / "b")
    assert _files(tmp_path / "a") == _files(tmp_path / "b")


def test_dense_sweeps_are_thinned_over_their_whole_range(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    row = {
        **operator_row,
        "op": "elementwise",
        "m": "",
        "n": "",
        "k": "",
        "batch": "",
        "params": "func=relu",
    }
    rows = [
        {**row, "id": f"op{i}", "elements": str(4096.0 * i), "time_us": str(10.0 + i)}
        for i in range(1, 501)
    ]
    done = import_directory(write_tables(operators=rows), tmp_path / "out")["operators"]
    table = operators(tmp_path / "out")
    assert len(done.kept) + done.thinned == 500
    assert len(table) == len(done.kept) < 500
    assert table.elements.min() == 4096
    assert table.elements.max() == 4096 * 500


def test_backward_rows_are_never_thinned(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    row = {
        **operator_row,
        "op": "layernorm",
        "direction": "bwd",
        "m": "",
        "n": "",
        "k": "",
        "batch": "",
        "cols": "1024.0",
    }
    rows = [
        {**row, "id": f"op{i}", "rows": str(8.0 * i), "time_us": str(50.0 + i)}
        for i in range(1, 601)
    ]
    import_directory(write_tables(operators=rows), tmp_path / "out")
    assert len(operators(tmp_path / "out")) == 600


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time_us": "100.0"}, "of peak FLOP/s"),
        ({"time_us": "-1"}, "time_us='-1' is not a positive number"),
        ({"time_us": ""}, "time_us is empty"),
        ({"time_us": "fast"}, "is not a positive number"),
        ({"gpu": "a101"}, "gpu 'a101' has no data sheet"),
        ({"op": "gem"}, "op 'gem' is not one of"),
        ({"direction": "sideways"}, "direction 'sideways'"),
        ({"precision": "fp15"}, "precision 'fp15'"),
        ({"precision": "bf16"}, "no such matrix format"),
        ({"k": ""}, "shape is incomplete"),
        ({"k": "-4096"}, "k='-4096' is not a size"),
        ({"head_dim": "64"}, "head_dim=64 has no meaning for gemm"),
        ({"license": ""}, "license is empty"),
        ({"note": "UNRELIABLE: clock throttled"}, "UNRELIABLE"),
    ],
)
def test_a_corrupted_operator_row_is_quarantined_with_its_reason(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row, change: Row, reason: str
) -> None:
    rows = [operator_row, {**operator_row, "id": "bad1", "n": "2048.0", **change}]
    import_directory(write_tables(operators=rows), tmp_path / "out")
    assert operators(tmp_path / "out").id.tolist() == ["op1"]
    (refused,) = quarantined(tmp_path / "out")
    assert refused.row == "bad1"
    assert reason in refused.reason
    text = (tmp_path / "out" / "quarantine" / "operators.csv").read_text(encoding="utf-8")
    assert all(value in text for value in change.values())


def test_memory_faster_than_its_bandwidth_is_quarantined_unless_it_fits_the_cache(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    row = {
        **operator_row,
        "op": "softmax",
        "m": "",
        "n": "",
        "k": "",
        "batch": "",
        "cols": "1024.0",
    }
    rows = [
        {**row, "id": "big1", "rows": "65536.0", "time_us": "100.0"},
        {**row, "id": "small1", "rows": "512.0", "time_us": "1.0"},
    ]
    import_directory(write_tables(operators=rows), tmp_path / "out")
    assert operators(tmp_path / "out").id.tolist() == ["small1"]
    assert "of memory bandwidth" in quarantined(tmp_path / "out")[0].reason


def test_a_convolution_may_beat_the_peak(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    image = {"in_n": "32.0", "in_c": "256.0", "in_h": "28.0", "in_w": "28.0", "out_c": "256.0"}
    window = {
        "kernel_h": "3",
        "kernel_w": "3",
        "stride_h": "1",
        "stride_w": "1",
        "pad_h": "1",
        "pad_w": "1",
        "groups": "1",
    }
    row = {
        **operator_row,
        "op": "conv2d",
        "precision": "fp32",
        "m": "",
        "n": "",
        "k": "",
        "batch": "",
        **image,
        **window,
        "time_us": "1000.0",
    }
    import_directory(write_tables(operators=[row]), tmp_path / "out")
    table = operators(tmp_path / "out")
    assert table.flops[0] == 2 * 32 * 28 * 28 * 256 * 256 * 9
    assert table.flops[0] / table.time_s[0] > 1.05 * 15.7e12


def test_the_same_measurement_twice_is_kept_once(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    rows = [operator_row, {**operator_row, "id": "op2", "source_path": "elsewhere.csv"}]
    import_directory(write_tables(operators=rows), tmp_path / "out")
    assert operators(tmp_path / "out").id.tolist() == ["op1"]
    assert quarantined(tmp_path / "out")[0].reason == "the same measurement as op1"


def test_small_messages_alone_say_nothing_of_peers(
    write_tables: WriteTables, tmp_path: Path, collective_row: Row
) -> None:
    small = {**collective_row, "id": "small", "system": "other", "bytes": "1024", "time_us": "30.0"}
    import_directory(write_tables(collectives=[collective_row, small]), tmp_path / "out")
    assert sorted(collectives(tmp_path / "out").id.tolist()) == ["co1", "small"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time_us": "10.0"}, "of the link bandwidth"),
        ({"system": "other", "time_us": "900000.0"}, "without peer access"),
        ({"gpus": "1", "nodes": "1", "gpus_per_node": "1"}, "fewer than two GPUs"),
        ({"nodes": "2"}, "nodes x gpus_per_node"),
        ({"bytes": "many"}, "bytes='many' is not a positive number"),
    ],
)
def test_a_corrupted_collective_is_quarantined_with_its_reason(
    write_tables: WriteTables, tmp_path: Path, collective_row: Row, change: Row, reason: str
) -> None:
    rows = [collective_row, {**collective_row, "id": "bad1", "bytes": "500000000", **change}]
    import_directory(write_tables(collectives=rows), tmp_path / "out")
    assert collectives(tmp_path / "out").id.tolist() == ["co1"]
    assert reason in quarantined(tmp_path / "out")[0].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"unit": "images/min"}, "unit 'images/min'"),
        ({"precision": "mixed_bf16_fp32"}, "has no bf16_tensor"),
        ({"precision": "amp!"}, "precision 'amp!'"),
        ({"throughput": "80.0"}, "throughput and iteration_s contradict"),
        ({"throughput": "", "iteration_s": ""}, "none of throughput"),
        ({"gpus": ""}, "gpus is empty"),
        ({"nodes": "2.0"}, "nodes x gpus_per_node is 16"),
        ({"note": "UNRELIABLE"}, "UNRELIABLE"),
        ({"note": "tp/pp and micro-batch not printed"}, "how its model is split is not printed"),
        ({"source_commit": ""}, "source_commit is empty"),
    ],
)
def test_a_corrupted_measurement_is_quarantined_with_its_reason(
    write_tables: WriteTables, tmp_path: Path, measurement_row: Row, change: Row, reason: str
) -> None:
    rows = [measurement_row, {**measurement_row, "id": "bad1", "epochs": "3", **change}]
    import_directory(write_tables(measurements=rows), tmp_path / "out")
    assert [row["id"] for row in measurements(tmp_path / "out")] == ["me1"]
    assert reason in quarantined(tmp_path / "out")[0].reason


def test_a_whole_run_is_no_step_where_the_page_states_the_throughput(
    write_tables: WriteTables, tmp_path: Path, measurement_row: Row
) -> None:
    whole = {"throughput": "", "iteration_s": "", "total_s": "900.0", "steps": "1000.0"}
    rows = [
        measurement_row,
        {**measurement_row, "id": "whole1", **whole},
        {**measurement_row, "id": "whole2", **whole, "gpus": "4", "nodes": "", "gpus_per_node": ""},
    ]
    import_directory(write_tables(measurements=rows), tmp_path / "out")
    assert [row["id"] for row in measurements(tmp_path / "out")] == ["me1", "whole2"]
    assert "a whole run" in quarantined(tmp_path / "out")[0].reason


def test_the_command_wants_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "usage" in capsys.readouterr().err


def test_commits_of_one_repository_have_keys_of_their_own(
    write_tables: WriteTables, tmp_path: Path, operator_row: Row
) -> None:
    rows = _varied(operator_row, 2)
    rows[1]["source_commit"] = "fedcba9876543210fedcba9876543210fedcba98"
    rows.append({**rows[1], "id": "op3", "license": "BSD-3-Clause", "k": "64"})
    import_directory(write_tables(operators=rows), tmp_path / "out")
    table = operators(tmp_path / "out")
    found = sources(tmp_path / "out")
    assert len(np.unique(table.source)) == len(found) == 3
    assert {s.license for s in found.values()} == {"MIT", "BSD-3-Clause"}
