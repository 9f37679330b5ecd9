"""Profile, fit, predict, train, compare: the loop on the processor the tests run on."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from predictor.measure.profiler.session import Request, profile
from predictor.measure.profiler.verify.compare import Verification, compare, trained
from predictor.measure.profiler.verify.networks import CANDIDATES
from predictor.physics.operator_time import OperatorTimes
from profiles import roots
from profiles.gpus import GPU, find_gpu, gpus
from profiles.tables import OperatorTable, operators, take

MINUTES = 0.5
GPU_WITH_ROWS = "v100-pcie-16gb"
CHOSEN = ("gru", "recommender", "tagger")
SMALL = [replace(c, batch_size=4) for c in CANDIDATES if c.name in CHOSEN]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Tables of this processor, and what they call it."""
    root = tmp_path_factory.mktemp("tables")
    summary = profile(Request(device="cpu", out=root, minutes=MINUTES))
    return root, summary.device


def verify(root: Path, minutes: float = 10.0) -> Verification:
    name, left = trained(root, "cpu", networks=SMALL, minutes=minutes)
    return compare(root, name, networks=SMALL, left=left)


@pytest.fixture(scope="module")
def verified(profiled: tuple[Path, str]) -> Verification:
    root, _ = profiled
    return verify(root)


def test_every_network_is_compared_in_both_precisions(
    profiled: tuple[Path, str], verified: Verification
) -> None:
    """oneDNN has no LSTM in bfloat16 for some processors: that run is set aside with its reason."""
    found = {(c.network, c.run.name) for c in verified.comparisons}
    aside = profiled[0] / "quarantine" / "steps.csv"
    text = aside.read_text(encoding="utf-8") if aside.exists() else ""
    rows = csv.DictReader(text.splitlines())
    refused = {(row["network"], row["precision"]) for row in rows if "primitive" in row["reason"]}
    assert refused <= {("tagger", "mixed_bf16_fp32")}
    assert found | refused == {(n, p) for n in CHOSEN for p in ("fp32", "mixed_bf16_fp32")}
    assert all(c.measured_s > 0 for c in verified.comparisons)


def test_a_second_run_trains_nothing_again_and_says_the_same(
    profiled: tuple[Path, str], verified: Verification
) -> None:
    root, name = profiled
    rows = (root / "steps.csv").read_bytes()
    assert verify(root, minutes=0.0) == verified
    assert (root / "steps.csv").read_bytes() == rows
    again = compare(root, name, networks=SMALL[:1])
    assert [c.network for c in again.comparisons] == [SMALL[0].name] * 2


def test_predictions_have_the_right_size(verified: Verification) -> None:
    """After seconds of profiling on a machine that others use, no more is promised."""
    assert all(0.02 < c.predicted.step_s / c.measured_s < 50 for c in verified.comparisons)


def test_rows_of_a_cpu_change_no_price_of_a_gpu(profiled: tuple[Path, str]) -> None:
    root, name = profiled
    shipped = operators()
    some = take(shipped, np.flatnonzero(shipped.gpu == GPU_WITH_ROWS))
    with roots.also(root):
        own = operators(root)
        both = OperatorTable(
            **{f: np.concatenate((getattr(some, f), getattr(own, f))) for f in vars(some)}
        )
        alone = {n: gpu for n, gpu in gpus().items() if gpu.kind == GPU}
        cpu = {name: find_gpu(name)}
        mixed = OperatorTimes.fit(both, alone | cpu)
        plain = OperatorTimes.fit(some, alone)
    known = {(f.group, f.architecture): f.constants for f in mixed.fitted}
    assert len(known) > len(plain.fitted) > 0
    for fitted in plain.fitted:
        assert np.array_equal(known[fitted.group, fitted.architecture], fitted.constants)


def test_times_of_a_cpu_survive_storage(profiled: tuple[Path, str]) -> None:
    root, name = profiled
    with roots.also(root):
        times = OperatorTimes.fit(operators(root), {name: find_gpu(name)})
        again = OperatorTimes.from_arrays(times.to_arrays())
        assert [f.group for f in again.fitted] == [f.group for f in times.fitted]
        for one, other in zip(times.fitted, again.fitted, strict=True):
            assert one.near is not None
            assert other.near is not None
            assert np.array_equal(one.near.at(one.near.points), other.near.at(one.near.points))
