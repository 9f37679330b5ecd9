"""Linear layers in FP8: what they compute, what they leave alone, and a step that trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from predictor.job.precision import Precision
from predictor.measure.profiler.device import Device, Sheet
from predictor.measure.profiler.timing import CpuTimer
from predictor.measure.profiler.verify.networks import CANDIDATES, NETWORKS
from predictor.measure.profiler.verify.steps import Fp8Linear, StepRun, in_fp8, read, train

# E4M3 keeps 3 bits behind the point, E5M2 (gradients) 2: half a step is 1/16 and 1/8 at most.
VALUES_OFF, GRADIENTS_OFF = 1 / 16, 1 / 8
WITHOUT = {"resnet50", "unet", "lstm"}  # no linear layer whose sizes are multiples of 16


def off(found: Tensor | None, wanted: Tensor | None) -> float:
    assert found is not None
    assert wanted is not None
    a, b = found.detach().float(), wanted.detach().float()
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_products_and_gradients_are_right_to_the_bits_of_the_format(size: float) -> None:
    torch.manual_seed(0)
    plain, narrow = nn.Linear(64, 48), nn.Linear(64, 48)
    narrow.load_state_dict(plain.state_dict())
    in_fp8(narrow)
    x, y = (size * torch.randn(4, 16, 64, generator=torch.Generator().manual_seed(1)) for _ in "xy")
    x.requires_grad_()
    y.requires_grad_()
    wanted, found = plain(x), narrow(y)
    assert found.dtype is torch.bfloat16
    assert off(found, wanted) < VALUES_OFF
    grad = torch.randn(wanted.shape)
    wanted.backward(grad)
    found.backward(grad.bfloat16())
    assert off(y.grad, x.grad) < GRADIENTS_OFF
    assert off(narrow.weight.grad, plain.weight.grad) < GRADIENTS_OFF
    assert off(narrow.bias.grad, plain.bias.grad) < GRADIENTS_OFF


def test_layers_of_other_sizes_stay_as_they_are() -> None:
    network = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10), nn.LayerNorm(10))
    in_fp8(network)
    assert [type(layer) for layer in network] == [Fp8Linear, nn.Linear, nn.LayerNorm]
    with pytest.raises(ValueError, match="multiples of 16"):
        in_fp8(network[1])


@pytest.mark.parametrize("network", NETWORKS, ids=lambda c: c.name)
def test_networks_of_products_have_layers_for_fp8(network: object) -> None:
    chosen = next(c for c in NETWORKS if c is network)
    with torch.device("meta"):
        module = chosen.build()
    if chosen.name in WITHOUT:
        with pytest.raises(ValueError, match="multiples of 16"):
            in_fp8(module)
    else:
        in_fp8(module)


@pytest.mark.filterwarnings("ignore")  # torch warns of what it does itself
def test_a_network_compiles_in_one_graph() -> None:
    """The backend is the eager one: what kernels it makes of it is another matter."""
    network = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    in_fp8(network)
    x = torch.randn(16, 32)
    wanted = network(x)
    network.compile(backend="aot_eager", fullgraph=True)
    found = network(x)
    found.float().sum().backward()
    assert torch.equal(found, wanted)
    assert all(p.grad is not None for p in network.parameters())
    torch.compiler.reset()


def test_a_step_is_measured_and_one_that_fp8_does_not_fit_is_told(tmp_path: Path) -> None:
    chosen = [replace(c, batch_size=4) for c in CANDIDATES if c.name in ("bert", "lstm")]
    runs = [StepRun(candidate=c, precision=Precision.MIXED_FP8_BF16) for c in chosen]
    here = Device(
        torch=torch.device("cpu"),
        sheet=Sheet("made-up", None),
        timer=CpuTimer(1),
        sensors=None,
        library=torch.__version__,
    )
    assert train(tmp_path, here, runs) == 0
    assert [run.candidate.name for run in read(tmp_path, "made-up", chosen)] == ["bert"]
    assert "multiples of 16" in (tmp_path / "quarantine" / "steps.csv").read_text()
