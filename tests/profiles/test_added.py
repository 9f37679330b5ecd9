"""Directories that a site adds: checked first, kept whole, used by name, and removed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from import_profiles import write_table

from predictor.errors import JobError, ProfileError
from predictor.estimate import added_profiles, store
from predictor.estimate.fitting import fit_steps
from predictor.job.training_job import TrainingJob
from predictor.physics.operator_time import OperatorTimes
from predictor.physics.step import StepModel
from predictor.planning.cost import power_of
from profiles import joined
from profiles.check import check
from profiles.gpus import UnknownGpuError, find_gpu, gpus
from profiles.storage import OPERATOR_COLUMNS
from profiles.tables import operators, take

DEVICE = "cpu-test-2t"
SHEET = {
    "kind": "cpu",
    "product": "Test CPU, 2 threads",
    "architecture": "cpu",
    "sms": 2,
    "memory_gib": 24,
    "bandwidth_gb_per_s": 20,
    "l2_mib": 32,
    "peak_tflops": {"fp32": 0.2},
    "source": "written by a test",
}
SOURCE = {"repository": "r", "commit": "c", "license": "CC0-1.0", "citation": "a test"}


@pytest.fixture
def directory(tmp_path: Path, home: Path) -> Iterator[Path]:
    """A profile directory of a CPU that nobody knows: 40 GEMMs at half the peak."""
    root = tmp_path / "site"
    root.mkdir()
    (root / "gpus.yaml").write_text(yaml.safe_dump({DEVICE: SHEET}))
    (root / "sources.yaml").write_text(yaml.safe_dump({"site": SOURCE}))
    sizes = np.linspace(64, 1024, 40).astype(int).tolist()
    rows = [_gemm(i, n, 2 * n**3 / 1e11 * 1e6 + 5) for i, n in enumerate(sizes)]
    write_table(root / "operators" / f"{DEVICE}.csv", OPERATOR_COLUMNS, rows)
    joined.forget()
    yield root
    joined.forget()


def _gemm(number: int, n: int, time_us: float) -> tuple[str, ...]:
    return (
        f"t{number}",
        "site",
        "x",
        "torch",
        "gemm",
        "fwd",
        "fp32",
        f"{n} {n} {n} 1",
        "",
        f"{time_us:.2f}",
        "",
    )


def test_an_added_device_has_a_name_rows_and_a_price(directory: Path) -> None:
    with pytest.raises(UnknownGpuError):
        find_gpu(DEVICE)
    before = store.tables_hash()
    kept = added_profiles.add(directory)
    assert (kept.name, kept.operator_rows, kept.devices) == ("site", 40, (DEVICE,))
    assert find_gpu("CPU test 2t").kind == "cpu"
    assert store.tables_hash() != before
    assert len(joined.operators()) == len(operators()) + 40
    rows = joined.operators()
    times = OperatorTimes.fit(take(rows, np.flatnonzero(rows.gpu == DEVICE)), gpus())
    check_price(StepModel(times, store.load_predictor("shipped").steps.collectives))


def check_price(steps: StepModel) -> None:
    """As its rows have it, half the peak."""
    job = TrainingJob(model="bert-base", precision="fp32", gpu=DEVICE, batch_size=1, seq_len=128)
    step = steps.price(job)
    assert step.host_s == 0.0
    work_s = step.flops / 1e11
    assert 0.5 * work_s < step.step_s < 3 * work_s


@pytest.mark.slow
def test_rows_of_a_cpu_move_no_price_of_a_gpu(directory: Path) -> None:
    job = TrainingJob(model="resnet50", precision="amp", gpu="v100-sxm2-16gb", batch_size=64)
    before = fit_steps().price(job)
    added_profiles.add(directory)
    after = fit_steps()
    assert after.price(job) == before
    check_price(after)


def test_a_wrong_directory_is_refused_and_leaves_nothing(directory: Path) -> None:
    unsourced = [cell.replace("site", "nobody") for cell in _gemm(99, 1024, 1.0)]
    with (directory / "operators" / f"{DEVICE}.csv").open("a") as file:
        file.write(",".join(unsourced) + "\n")
    with pytest.raises(ProfileError, match="operators t99: unknown source 'nobody'"):
        added_profiles.add(directory)
    assert added_profiles.added() == []
    with pytest.raises(UnknownGpuError):
        find_gpu(DEVICE)


def test_a_directory_without_sources_is_named(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ProfileError, match=r"has no sources\.yaml"):
        added_profiles.add(tmp_path)


def test_adding_again_replaces_and_removing_forgets(directory: Path) -> None:
    added_profiles.add(directory, "first")
    write_table(
        directory / "operators" / f"{DEVICE}.csv", OPERATOR_COLUMNS, [_gemm(0, 512, 4000.0)]
    )
    assert added_profiles.add(directory, "first").operator_rows == 1
    assert len(joined.operators()) == len(operators()) + 1
    added_profiles.remove("first")
    with pytest.raises(UnknownGpuError):
        find_gpu(DEVICE)
    with pytest.raises(ProfileError, match="none was added"):
        added_profiles.remove("first")


def test_what_others_could_write_is_not_read(directory: Path, home: Path) -> None:
    added_profiles.add(directory)
    (home / "profiles" / "site").chmod(0o777)
    joined.forget()
    with pytest.raises(UnknownGpuError):
        find_gpu(DEVICE)


def test_a_sheet_that_contradicts_a_shipped_one_is_refused(directory: Path) -> None:
    (directory / "gpus.yaml").write_text(yaml.safe_dump({"v100-sxm2-16gb": SHEET}))
    assert any("another sheet of v100-sxm2-16gb" in p.reason for p in check(directory))
    assert "volta" in find_gpu("v100-sxm2-16gb").architecture


def test_energy_of_a_device_without_power_is_refused(directory: Path) -> None:
    added_profiles.add(directory)
    with pytest.raises(JobError, match="tdp_w"):
        power_of(find_gpu(DEVICE))
