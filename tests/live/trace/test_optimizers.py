"""The optimizer step: a name is priced by the product's table, one of the user's own is traced."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import profiles

torch = pytest.importorskip("torch")
from predictor.cli.main import main  # noqa: E402
from predictor.errors import JobError  # noqa: E402
from predictor.estimate.fitting import Fitted  # noqa: E402
from predictor.graphs.catalog import entry_of  # noqa: E402
from predictor.graphs.families.stored import find_traced  # noqa: E402
from predictor.measure.trace.step import FakeNetwork, built  # noqa: E402
from predictor.measure.trace.tracer import trace  # noqa: E402
from predictor.physics.optimizer import optimizer_rule  # noqa: E402

nn, optim = torch.nn, torch.optim
RULES = yaml.safe_load((Path(profiles.__file__).parent / "optimizers.yaml").read_text())
Factory = Callable[[Any], Any]


def network() -> Any:
    wide, square = (nn.Linear(a, 512, bias=False) for a in (256, 512))
    return nn.Sequential(wide, nn.ReLU(), square)


def update_of(factory: Factory) -> Any:
    return FakeNetwork(built(network)).update(factory)


class Lamb(optim.Optimizer):  # type: ignore[misc, name-defined]
    """LAMB (arXiv 1904.00962): Adam's direction, as long as the weight's norm says."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
            m, v = state["m"].lerp_(p.grad, 0.1), state["v"].mul_(0.9)
            v.addcmul_(p.grad, p.grad, value=0.1)
            direction = m / (v.sqrt() + 1e-6)
            if p.norm().item() > 0:
                direction = direction * (p.norm() / direction.norm())
            p.add_(direction, alpha=-1e-3)


OF_TORCH: dict[str, Factory] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p),
    "adamw": lambda p: optim.AdamW(p),
    "rmsprop": lambda p: optim.RMSprop(p, momentum=0.9),
}


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_step_of_torchs_costs_what_the_table_counts(name: str) -> None:
    found, rule = update_of(OF_TORCH[name]), RULES[name]
    assert found.bytes_per_parameter == pytest.approx(rule["bytes_per_parameter"], rel=1e-3)
    assert found.state_bytes_per_parameter == pytest.approx(
        rule["state_bytes_per_parameter"], rel=1e-3
    )
    assert found.launches_per_tensor == pytest.approx(rule["launches_per_tensor"], abs=1)


def test_norms_cost_another_pass() -> None:
    """Direction and weight are read once more behind the norms, and the direction is kept."""
    found = update_of(Lamb)
    assert 28 < found.bytes_per_parameter <= 44
    assert found.state_bytes_per_parameter == 8


def test_one_launch_takes_many_tensors() -> None:
    one_by_one, together = (
        update_of(lambda p, f=foreach: optim.AdamW(p, foreach=f)) for foreach in (False, True)
    )
    assert together.launches_per_tensor < one_by_one.launches_per_tensor
    assert together.bytes_per_parameter == pytest.approx(one_by_one.bytes_per_parameter, rel=1e-3)


def test_matrix_products_are_listed() -> None:
    found = update_of(lambda p: optim.Muon(p))
    assert found.products
    assert found.bytes_per_parameter > 28


def test_the_step_of_a_job_is_priced_by_it(
    fitted: Fitted, session_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(session_home))
    from predictor.estimate.api import predict_time

    example = torch.empty(8, 256, device="meta")
    own = trace(network, example, name="own", optimizer=Lamb)
    plain = trace(network, example, name="plain", optimizer="sgd")
    rule = optimizer_rule(entry_of(own.name).optimizer)
    assert own.model.update is not None
    assert rule.bytes_per_parameter == own.model.update.bytes_per_parameter
    slow, fast = (predict_time(s.name, "fp32", batch_size=8).physical for s in (own, plain))
    assert slow.optimizer_s > fast.optimizer_s


OWN = """
import torch

def build():
    return torch.nn.Linear(64, 64)

def nadam(parameters):
    return torch.optim.NAdam(parameters, lr=1e-3)

def nothing(parameters):
    return None
"""


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_steps.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_steps", None)


def run(optimizer: str) -> Any:
    words = ("trace", "own_steps:build", "--input", "64", "--name", "own", "--format", "json")
    return CliRunner().invoke(main, (*words, "--optimizer", optimizer))


@pytest.mark.usefixtures("project")
def test_the_command_names_it() -> None:
    told = json.loads(run("own_steps:nadam").stdout)
    assert told["optimizer"] == "nadam"
    assert told["optimizer_bytes_per_parameter"] == pytest.approx(28, rel=0.01)
    stored = find_traced("own")
    assert stored is not None
    assert entry_of("own").optimizer == stored.name


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("lion2", "nearest are lion"),
        ("own_steps:nothing", "gives a torch optimizer"),
        ("own_steps:build", "expected f(parameters)"),
        ("own_steps:none", "has no none"),
    ],
)
def test_a_mistake_is_named(optimizer: str, said: str) -> None:
    result = run(optimizer)
    assert result.exit_code == 2
    assert "optimizer=" in result.stderr
    assert said in result.stderr


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(JobError, match="gives a torch optimizer"):
        update_of(lambda p: object())
