"""What is shipped can be traced, holds physics, and stays small and quick to read."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest

from profiles.check import SIZE_LIMIT_BYTES, check, quarantined, size_bytes
from profiles.gpus import find_gpu
from profiles.storage import HERE, MEASUREMENT_COLUMNS, sources
from profiles.tables import collectives, measurements, operators


def test_nothing_is_wrong_with_the_shipped_data() -> None:
    assert check() == []


def test_every_operator_and_collective_row_has_a_source_with_a_licence() -> None:
    known = sources()
    for table in (operators(), collectives()):
        assert len(table) > 1000
        for key in np.unique(table.source).tolist():
            assert known[key].license
            assert known[key].commit


def test_every_measurement_says_where_it_comes_from() -> None:
    rows = measurements()
    assert len(rows) > 1000
    for row in rows:
        assert tuple(row) == MEASUREMENT_COLUMNS
        for column in ("source_repo", "source_commit", "source_path", "license"):
            assert row[column], (row["id"], column)


def test_every_refused_row_has_a_reason_and_a_source() -> None:
    known = sources()
    refused = quarantined()
    assert {row.table for row in refused} >= {"measurements", "operators"}
    for row in refused:
        assert row.reason, row.row
        assert row.source in known, row.row


def test_refused_rows_are_not_in_the_tables() -> None:
    shipped = {
        "operators": set(operators().id.tolist()),
        "collectives": set(collectives().id.tolist()),
        "measurements": {row["id"] for row in measurements()},
    }
    for row in quarantined():
        assert row.row not in shipped[row.table]


def test_matrix_operators_stay_below_the_peak_and_memory_below_its_bandwidth() -> None:
    table = operators()
    for name in np.unique(table.gpu).tolist():
        gpu = find_gpu(name)
        # GeForce and TITAN clocks exceed the data sheet.
        boost = 1.25 if "GeForce" in gpu.product or "TITAN" in gpu.product else 1.05
        peak = max(gpu.peak_flops.values())
        rows = (table.gpu == name) & np.isin(table.op, ("gemm", "batched_gemm", "attention"))
        assert np.all(table.flops[rows] / table.time_s[rows] < boost * peak), name
        rows = (table.gpu == name) & np.isin(table.op, ("elementwise", "softmax"))
        rows &= table.bytes > 2 * gpu.l2_bytes
        rate = table.bytes[rows] / table.time_s[rows]
        assert np.all(rate < 1.05 * gpu.bandwidth_bytes_per_s), name


def test_numbers_are_whole() -> None:
    table = operators()
    assert np.all(table.time_s > 0)
    assert np.all(table.bytes > 0)
    assert np.all(np.isfinite(table.flops))
    assert np.all(collectives().time_s > 0)
    assert np.all(collectives().bytes > 0)


def test_rare_operators_are_shipped_whole() -> None:
    table = operators()
    backward = table.direction != "fwd"
    for op, least in {"conv2d": 3000, "rnn": 1200, "attention": 2900, "batchnorm": 300}.items():
        assert np.count_nonzero(table.op == op) >= least, op
    assert np.count_nonzero((table.op == "layernorm") & backward) >= 500
    assert np.count_nonzero((table.op == "softmax") & backward) >= 400


def test_data_is_small() -> None:
    assert size_bytes() < SIZE_LIMIT_BYTES == 11_000_000


def test_importing_profiles_loads_neither_numpy_nor_yaml() -> None:
    script = "import sys, profiles; sys.exit('numpy' in sys.modules or 'yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=HERE.parent)


def test_sources_md_counts_every_row() -> None:
    text = (HERE / "SOURCES.md").read_text(encoding="utf-8")
    total = next(line for line in text.splitlines() if line.startswith("| all "))
    counts = [int(cell) for cell in total.split("|")[4:8]]
    assert counts == [len(measurements()), len(operators()), len(collectives()), len(quarantined())]
    for source in sources().values():
        assert f"`{source.commit}`" in text


@pytest.mark.parametrize("folder", ["operators", "collectives", "measurements"])
def test_every_stored_row_keeps_id_source_and_path(folder: str) -> None:
    for path in (HERE / folder).glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                assert all(row[:3]), (path.name, row[:3])
