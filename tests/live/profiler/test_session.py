"""A run on this machine's CPU: tables that check, add and price; and that a killed run leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import torch
from profiled import operator_rows, rows

from predictor.errors import ProfilerError
from predictor.estimate import added_profiles
from predictor.measure.profiler.session import Request, Summary, profile
from predictor.physics.operator_time.samples import samples_of
from profiles import joined
from profiles.check import check, quarantined
from profiles.gpus import CPU, find_gpu, gpus
from profiles.tables import operators

TINY_MINUTES = 0.15
# A busy machine gets few rows in a run, or none: it is gone on with, as users do.
ROWS, RUNS = 60, 20


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a short run filled, or several."""
    root = tmp_path_factory.mktemp("profiled") / "here"
    for _ in range(RUNS):
        run(root, minutes=0.3)
        if len(notes(root)) >= ROWS:
            break
    return root


@pytest.fixture(autouse=True)
def forgotten(home: Path) -> Iterator[None]:
    """Tests know nothing of each other's devices."""
    joined.forget()
    yield
    joined.forget()


def run(root: Path, minutes: float = TINY_MINUTES, stop: Event | None = None) -> Summary:
    return profile(Request(device="cpu", out=root, minutes=minutes), stop=stop)


def test_the_directory_is_sound_and_states_its_device(out: Path) -> None:
    assert check(out) == []
    [table] = (out / "operators").glob("*.csv")
    added_profiles.add(out)
    cpu = find_gpu(table.stem)
    assert cpu.kind == CPU
    assert cpu.sms == torch.get_num_threads()
    assert cpu.name.endswith(f"-{cpu.sms}t")
    assert cpu.peak_flops["fp32"] > 1e8
    assert cpu.bandwidth_bytes_per_s > 1e7
    assert "measured by precision-time profile" in cpu.source


def test_its_rows_price_the_device(out: Path) -> None:
    kept = added_profiles.add(out)
    table = operators(out)
    samples = samples_of(table, gpus())
    assert len(samples) > 0.5 * len(table)
    assert set(samples.gpu.tolist()) == set(kept.devices)
    assert (samples.seconds > 0).all()


def test_a_row_says_how_it_was_measured(out: Path) -> None:
    for row in operator_rows(out):
        assert row["library"] == f"torch {torch.__version__}"
        assert row["path"] == "precision-time profile"
        assert "spread=" in row["note"] or "cannot run" in row["reason"]


def test_refused_rows_stand_apart_with_a_reason(out: Path) -> None:
    refused = rows(out / "quarantine" / "operators.csv")
    assert len(quarantined(out)) == len(refused)
    assert all(row["reason"] and "UNRELIABLE" in row["note"] for row in refused)
    assert not any("UNRELIABLE" in note for note in notes(out))


def notes(out: Path) -> list[str]:
    return [row["note"] for path in (out / "operators").glob("*.csv") for row in rows(path)]


def test_the_manifest_tells_of_the_run(out: Path) -> None:
    runs = json.loads((out / "manifest.json").read_text())
    for told in runs:
        assert told["library"] == f"torch {torch.__version__}"
        assert told["threads"] == torch.get_num_threads()
    assert sum(sum(told["operators"].values()) for told in runs) == len(notes(out))


def test_running_again_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    first = run(tmp_path)
    sheet = (tmp_path / "gpus.yaml").read_bytes()
    before = {row["id"] for row in operator_rows(tmp_path)}
    runs, ids = 1, list(before)
    while len(ids) == len(before) and runs < RUNS:
        second, runs = run(tmp_path), runs + 1
        ids = [row["id"] for row in operator_rows(tmp_path)]
    assert len(ids) == len(set(ids))
    assert before < set(ids)
    assert second.stood == sum(first.operators.values())
    assert (tmp_path / "gpus.yaml").read_bytes() == sheet
    assert len(json.loads((tmp_path / "manifest.json").read_text())) == runs


def test_it_ends_in_time(tmp_path: Path) -> None:
    """One case that is under way may end later, and a sheet has to be measured first."""
    assert run(tmp_path, 0.1).seconds < 120


def test_it_stops_when_asked(tmp_path: Path) -> None:
    stop = Event()
    stop.set()
    assert run(tmp_path, 10.0, stop).operators == {}
    assert check(tmp_path) == []


def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path, 5.0), stderr=subprocess.DEVNULL)
    try:
        table = wait_for_rows(tmp_path, 8)
    finally:
        process.kill()
        process.wait()
    with table.open("ab") as file:
        file.write(b"pt00torn,some,ro")
    before = {row["id"] for row in operator_rows(tmp_path)} - {"pt00torn"}
    done = subprocess.run(
        command(tmp_path, TINY_MINUTES, "--format", "json"), capture_output=True, check=True
    )
    after = [row["id"] for row in operator_rows(tmp_path)]
    assert json.loads(done.stdout)["stood"] >= 8
    assert before <= set(after)
    assert len(after) == len(set(after))
    assert "pt00torn" not in after
    joined.forget()
    assert check(tmp_path) == []


def command(root: Path, minutes: float, *more: str) -> list[str]:
    arguments = ["profile", "--device", "cpu", "--out", str(root), "--minutes", str(minutes)]
    return [sys.executable, "-c", MAIN, *arguments, *more]


MAIN = "from predictor.cli.main import main; main()"


def wait_for_rows(root: Path, count: int) -> Path:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for path in (root / "operators").glob("*.csv"):
            if path.read_bytes().count(b"\n") > count:
                return path
        time.sleep(0.05)
    pytest.fail("no rows")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:0", "cuda:99"])
def test_a_device_that_is_not_here_is_named(device: str, tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=device):
        profile(Request(device=device, out=tmp_path / "x", minutes=1.0))
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ProfilerError, match="cannot be written"):
        run(tmp_path / "x")


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(ProfilerError, match="cannot be written"):
        run(tmp_path / "x")
