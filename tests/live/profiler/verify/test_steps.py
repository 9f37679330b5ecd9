"""Whole steps on the disk: what fails is told, what is done is not done again."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from predictor.errors import ProfilerError
from predictor.job.precision import Precision
from predictor.measure.profiler.device import Device, Sheet
from predictor.measure.profiler.directory import RUNS
from predictor.measure.profiler.nvml import Reading
from predictor.measure.profiler.timing import CpuTimer
from predictor.measure.profiler.verify.compare import graph_of
from predictor.measure.profiler.verify.networks import NETWORKS, Candidate, Data, LlamaLayer
from predictor.measure.profiler.verify.steps import StepRun, devices, read, runs_for, train

CPU = torch.device("cpu")


class Line(nn.Module):
    """A network that trains in microseconds, unless its loss is asked to fail."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(4, 4), error

    def forward(self, x: Tensor) -> Tensor:
        if self.error is not None:
            raise self.error
        return self.layer(x).square().mean()


class Gpu:
    """NVML as a GPU that draws 250 W answers, with its clocks held down or not."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow

    def reading(self) -> Reading:
        return Reading(1.0, 1.0, 250.0, 300.0, 50.0)

    def slowed(self) -> bool:
        return self.slow


def candidate(name: str, error: Exception | None = None) -> Candidate:
    return Candidate(name=name, build=lambda: Line(error), data=(Data(sizes=(4,)),), batch_size=8)


def device(sensors: Any = None) -> Device:
    sheet = Sheet(device="made-up", entry=None)
    return Device(
        torch=CPU, sheet=sheet, timer=CpuTimer(1), sensors=sensors, library=torch.__version__
    )


def runs(*candidates: Candidate) -> list[StepRun]:
    return [StepRun(candidate=c, precision=Precision.FP32) for c in candidates]


def refused(root: Path) -> list[tuple[str, str]]:
    with (root / "quarantine" / "steps.csv").open(newline="") as file:
        return [(row["network"], row["reason"]) for row in csv.DictReader(file)]


def test_one_that_runs_out_of_memory_is_told_and_not_tried_again(tmp_path: Path) -> None:
    full = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 96.00 GiB")
    chosen = [candidate("first"), candidate("huge", full), candidate("last")]
    assert train(tmp_path, device(), runs(*chosen)) == 0
    assert [run.candidate.name for run in read(tmp_path, "made-up", chosen)] == [
        "first",
        "last",
    ]
    assert refused(tmp_path) == [("huge", str(full))]
    before = (tmp_path / "steps.csv").read_bytes()
    assert train(tmp_path, device(), runs(*chosen)) == 0
    assert len(refused(tmp_path)) == 1
    assert (tmp_path / "steps.csv").read_bytes() == before
    assert devices(tmp_path) == ["made-up"]


def test_a_lost_device_ends_the_piece_and_the_next_one_goes_on(tmp_path: Path) -> None:
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    chosen = [candidate("first"), candidate("bad", lost), candidate("last")]
    with pytest.raises(ProfilerError, match="run the same command again to go on"):
        train(tmp_path, device(), runs(*chosen))
    assert train(tmp_path, device(), runs(*chosen)) == 0
    assert [run.candidate.name for run in read(tmp_path, "made-up", chosen)] == ["first", "last"]
    assert refused(tmp_path) == [("bad", str(lost))]


def test_a_network_in_which_pieces_are_killed_is_left_out_in_the_third(tmp_path: Path) -> None:
    class KilledError(BaseException):
        """As a time limit or the system ends a process."""

    chosen = [candidate("hangs", KilledError()), candidate("last")]  # type: ignore[arg-type]
    for _ in range(RUNS):
        with pytest.raises(KilledError):
            train(tmp_path, device(), runs(*chosen))
    assert train(tmp_path, device(), runs(*chosen)) == 0
    assert refused(tmp_path) == [("hangs", "2 runs were killed while it was measured")]
    assert [run.candidate.name for run in read(tmp_path, "made-up", chosen)] == ["last"]


def test_a_version_of_torch_without_a_layer_costs_its_networks_alone(tmp_path: Path) -> None:
    missing = AttributeError("module 'torch.nn' has no attribute 'RMSNorm'")
    chosen = [candidate("llama", missing), candidate("last")]
    assert train(tmp_path, device(), runs(*chosen)) == 0
    assert refused(tmp_path) == [("llama", str(missing))]


def test_a_piece_that_is_over_or_stopped_says_how_many_are_left(tmp_path: Path) -> None:
    chosen = runs(candidate("one"), candidate("two"))
    stop = Event()
    stop.set()
    assert train(tmp_path, device(), chosen, stop=stop) == 2
    assert train(tmp_path, device(), chosen, minutes=0.0) == 2
    assert train(tmp_path, device(), chosen[:1]) == 0
    assert train(tmp_path, device(), chosen, minutes=0.0) == 1


def test_a_row_that_a_killed_piece_left_half_written_is_measured_again(tmp_path: Path) -> None:
    chosen = [candidate("one"), candidate("two")]
    train(tmp_path, device(), runs(*chosen))
    path = tmp_path / "steps.csv"
    path.write_bytes(path.read_bytes()[:-9])
    train(tmp_path, device(), runs(*chosen))
    assert [run.candidate.name for run in read(tmp_path, "made-up", chosen)] == ["one", "two"]


def test_power_is_kept_and_a_gpu_that_heat_slows_teaches_nothing(tmp_path: Path) -> None:
    (one,) = runs(candidate("one"))
    train(tmp_path / "cool", device(Gpu()), [one])
    (found,) = read(tmp_path / "cool", "made-up", [one.candidate]).values()
    assert found.power_w == 250.0
    assert found.timing.samples >= 4
    train(tmp_path / "hot", device(Gpu(slow=True)), [one])
    assert not read(tmp_path / "hot", "made-up", [one.candidate])
    assert "heat" in refused(tmp_path / "hot")[0][1]


def test_a_compiled_run_is_another_row(tmp_path: Path) -> None:
    (one,) = runs(candidate("one"))
    compiled = replace(one, compiled=True)
    assert one.id("x") != compiled.id("x")
    assert compiled.name == "fp32, compiled"


def test_another_batch_size_is_not_the_run_that_was_measured(tmp_path: Path) -> None:
    one = candidate("one")
    train(tmp_path, device(), runs(one))
    assert not read(tmp_path, "made-up", [replace(one, batch_size=16)])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # torchvision, timm; BERT and GPT-2 with heads of their own
        ("resnet50", 25_557_032),
        ("convnext_tiny", 28_589_128),
        ("gpt2", 124_439_808 + 50_257 * 768),
    ],
)
def test_networks_have_the_weights_of_those_they_stand_for(name: str, parameters: int) -> None:
    found = next(c for c in NETWORKS if c.name == name)
    assert graph_of(found).parameters == parameters


def smaller(data: Data) -> Data:
    """The same with fewer pixels or a shorter sequence."""
    sizes = {
        (3, 224, 224): (3, 64, 64),
        (3, 256, 256): (3, 64, 64),
        (256, 256): (64, 64),
        (320, 64, 64): (320, 8, 8),
    }.get(data.sizes)
    long = len(data.sizes) == 1 and data.sizes[0] >= 128
    return replace(data, sizes=sizes or ((16,) if long else data.sizes))


@pytest.mark.parametrize(
    "network",
    [c for c in NETWORKS if c.name not in ("bert_large", "gpt2_medium", "llama_stack")],
    ids=lambda c: c.name,
)
def test_networks_return_a_loss_that_trains_every_weight(network: Candidate) -> None:
    small = replace(network, batch_size=2, data=tuple(map(smaller, network.data)))
    module = small.build()
    loss = module(*small.batch(CPU))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is not None for p in module.parameters())


def test_rotary_positions_make_attention_see_distances_alone() -> None:
    torch.manual_seed(0)
    layer = LlamaLayer(32, 4, 64).eval()
    x = torch.randn(1, 6, 32)
    with torch.no_grad():
        assert torch.allclose(layer(x)[:, :3], layer(x[:, :3]), atol=1e-5)  # causal
        assert not torch.allclose(layer(x.flip(1)).flip(1), layer(x), atol=1e-3)


def test_a_gpu_trains_each_network_in_each_format_and_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an A100: torch says compute capability 8.0."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    found = runs_for(torch.device("cuda", 0), NETWORKS)
    assert len(found) == len(NETWORKS) * (6 + 1)
    assert found[0].precision is Precision.MIXED_BF16_FP32
    assert all(run.compiled for run in found[-len(NETWORKS) :])


def test_a_gpu_with_fp8_trains_in_it_too_compiled_and_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an H100: torch says compute capability 9.0."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    found = runs_for(torch.device("cuda", 0), NETWORKS[:1])
    assert [run.compiled for run in found if run.precision is Precision.MIXED_FP8_BF16] == [
        False,
        True,
    ]
