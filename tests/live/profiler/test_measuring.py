"""What becomes of a case: rows, or one row that says why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from profiled import SHEET, cases

from predictor.errors import ProfilerError
from predictor.measure.profiler import session
from predictor.measure.profiler.case import Case, CaseLimits, Runs, Shape
from predictor.measure.profiler.device import Device, Sheet
from predictor.measure.profiler.directory import OPERATORS, RUNS, Rows, directory
from predictor.measure.profiler.families import BY_NAME
from predictor.measure.profiler.session import Row, measured
from predictor.measure.profiler.timing import CpuTimer, Timing
from profiles.gpus import find_gpu

LIMITS = CaseLimits(gpu=find_gpu(SHEET), row_s=0.001)
GEMM = next(cases(BY_NAME["gemm"], "fp32"))


@pytest.fixture
def device() -> Device:
    """This CPU, under the name of a GPU."""
    return Device(
        torch=torch.device("cpu"),
        sheet=Sheet(SHEET, None),
        timer=CpuTimer(1),
        sensors=None,
        library="torch",
    )


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Rows]:
    """A table on the disk."""
    with directory(tmp_path).rows(OPERATORS, SHEET) as found:
        yield found


def rows(device: Device, case: Case, kept: Rows) -> list[Row]:
    return list(measured(case, device, LIMITS, kept))


def test_the_forward_comes_last_so_that_its_row_ends_the_case(device: Device, kept: Rows) -> None:
    assert [row.direction for row in rows(device, GEMM, kept)] == ["bwd_data", "bwd_weight", "fwd"]


def test_directions_that_stand_already_are_left_out(device: Device, kept: Rows) -> None:
    kept.done.add(GEMM.id(SHEET, "bwd_data"))
    assert [row.direction for row in rows(device, GEMM, kept)] == ["bwd_weight", "fwd"]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def runs(case: Case, where: torch.device) -> Runs:
        raise error

    monkeypatch.setitem(BY_NAME, "gemm", replace(BY_NAME["gemm"], runs=runs))


def test_a_shape_that_does_not_fit_in_memory_is_recorded(
    monkeypatch: pytest.MonkeyPatch, device: Device, kept: Rows
) -> None:
    failing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 80 GiB"))
    [row] = rows(device, GEMM, kept)
    assert row == Row(
        direction="fwd",
        timing=None,
        fault="cannot run: CUDA out of memory. Tried to allocate 80 GiB",
    )
    assert row.note == "UNRELIABLE"


def test_a_real_allocation_that_fails_is_recorded(device: Device, kept: Rows) -> None:
    huge = Case(
        family="gemm",
        op="gemm",
        dtype="fp32",
        shape=Shape({"m": 2**30, "n": 8, "k": 2**20, "batch": 1}, "b_t=T"),
    )
    [row] = rows(device, huge, kept)
    assert row.fault is not None
    assert "memory" in row.fault


def test_a_lost_device_ends_the_run_and_the_case_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, device: Device, kept: Rows
) -> None:
    failing(monkeypatch, RuntimeError("CUDA error: an illegal memory access was encountered"))
    found: Iterator[Row] = measured(GEMM, device, LIMITS, kept)
    assert next(found).direction == "fwd"
    with pytest.raises(ProfilerError, match="run the same command again"):
        next(found)


def test_a_case_in_which_runs_were_killed_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, device: Device, tmp_path: Path
) -> None:
    steady = Timing(time_s=0.001, spread=0.0, samples=5)  # however busy the machine
    monkeypatch.setattr(session, "timed", lambda *_: steady)
    for _ in range(RUNS):
        with directory(tmp_path).rows(OPERATORS, SHEET) as kept:
            assert next(measured(GEMM, device, LIMITS, kept)).fault is None  # and then it is killed
    with directory(tmp_path).rows(OPERATORS, SHEET) as kept:
        [row] = rows(device, GEMM, kept)
        assert row.fault == "cannot run: 2 runs were killed while it was measured"
        other = replace(GEMM, shape=replace(GEMM.shape, sizes={**GEMM.shape.sizes, "m": 24}))
        assert [r.fault for r in rows(device, other, kept)] == [None] * 3


@pytest.mark.parametrize("error", [TypeError("a new argument"), ImportError("no triton")])
def test_what_another_version_of_torch_lacks_costs_one_row(
    monkeypatch: pytest.MonkeyPatch, device: Device, kept: Rows, error: Exception
) -> None:
    failing(monkeypatch, error)
    [row] = rows(device, GEMM, kept)
    assert row.fault == f"cannot run: {error}"


def test_samples_that_disagree_are_marked(
    monkeypatch: pytest.MonkeyPatch, device: Device, kept: Rows
) -> None:
    uneven = Timing(time_s=1.0, spread=0.8, samples=5)
    monkeypatch.setattr(session, "timed", lambda *_: uneven)
    for row in rows(device, GEMM, kept):
        assert (row.fault, row.note) == ("samples disagree", "UNRELIABLE;spread=0.800;samples=5")


def test_a_time_that_physics_forbids_is_marked(
    monkeypatch: pytest.MonkeyPatch, device: Device, kept: Rows
) -> None:
    monkeypatch.setattr(session, "timed", lambda *_: Timing(time_s=1e-12, spread=0.0, samples=5))
    assert all("of peak FLOP/s" in str(row.fault) for row in rows(device, GEMM, kept))


def test_a_gpu_gets_copies_that_its_cache_cannot_hold() -> None:
    copies = session._copies(GEMM, find_gpu("h200-sxm-141gb"))
    assert copies == session.MOST_COPIES
    large = Case(
        family="gemm",
        op="gemm",
        dtype="fp32",
        shape=Shape({"m": 8192, "n": 8192, "k": 8192, "batch": 1}, "b_t=T"),
    )
    assert session._copies(large, find_gpu("h200-sxm-141gb")) == 1
