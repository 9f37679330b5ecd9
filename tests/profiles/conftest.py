"""Made-up rows in the exchanged columns; none of them is a measurement."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from profiles.conventions import DIM_FIELDS
from profiles.storage import MEASUREMENT_COLUMNS

ORIGIN = {
    "source_repo": "example/made-up",
    "source_commit": "0123456789abcdef0123456789abcdef01234567",
    "source_path": "results/made-up-for-a-test.csv",
    "license": "MIT",
}
OPERATOR = {
    **ORIGIN,
    **dict.fromkeys(DIM_FIELDS, ""),
    "id": "op1",
    "gpu": "v100-sxm2-16gb",
    "library": "test",
    "op": "gemm",
    "direction": "fwd",
    "precision": "fp16",
    "m": "4096.0",
    "n": "4096.0",
    "k": "4096.0",
    "batch": "1.0",
    "params": "",
    "time_us": "1500.0",
    "note": "",
}
COLLECTIVE = {
    **ORIGIN,
    "id": "co1",
    "gpu": "a100-sxm4-80gb",
    "system": "",
    "interconnect": "nvswitch",
    "library": "test",
    "op": "all_reduce",
    "gpus": "8",
    "nodes": "1.0",
    "gpus_per_node": "8.0",
    "bytes": "1000000000",
    "precision": "fp16",
    "time_us": "8000.0",
    "bus_gb_s": "",
    "note": "",
}
MEASUREMENT = {
    **dict.fromkeys(MEASUREMENT_COLUMNS, ""),
    **ORIGIN,
    "id": "me1",
    "framework": "pytorch",
    "model": "resnet50",
    "gpu": "v100-sxm2-16gb",
    "gpus": "8",
    "nodes": "1.0",
    "gpus_per_node": "8.0",
    "precision": "mixed_fp16_fp32",
    "global_batch": "2048.0",
    "throughput": "8000.0",
    "unit": "images/s",
    "iteration_s": "0.256",
}

Rows = Sequence[Mapping[str, str]]
WriteTables = Callable[..., Path]


@pytest.fixture
def write_tables(tmp_path: Path) -> WriteTables:
    """Writes the three exchanged files into a folder and returns it."""

    def write(
        *, measurements: Rows = (), operators: Rows = (), collectives: Rows = (), folder: str = "in"
    ) -> Path:
        directory = tmp_path / folder
        directory.mkdir()
        tables = {"measurements": measurements, "operators": operators, "collectives": collectives}
        for name, rows in tables.items():
            if rows:
                with (directory / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
        return directory

    return write


@pytest.fixture
def operator_row() -> dict[str, str]:
    return dict(OPERATOR)


@pytest.fixture
def collective_row() -> dict[str, str]:
    return dict(COLLECTIVE)


@pytest.fixture
def measurement_row() -> dict[str, str]:
    return dict(MEASUREMENT)
