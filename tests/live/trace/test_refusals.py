"""What cannot be traced is said with its place and its remedy; nothing is ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from traced_networks import images, small, tokens  # noqa: E402

from predictor.errors import ArtifactError, GraphError, JobError, UnknownModelError  # noqa: E402
from predictor.graphs.catalog import entry_of, find_entry, graph_of  # noqa: E402
from predictor.graphs.operator import Workload  # noqa: E402
from predictor.measure.trace.tracer import trace  # noqa: E402

nn = torch.nn


class Does(nn.Module):  # type: ignore[misc, name-defined]
    """A linear layer, and behind it what a test wants."""

    def __init__(self, then: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.then = then

    def forward(self, x: Any) -> Any:
        return self.then(self.first(x))


def rows(batch: int = 4) -> Any:
    return torch.empty(batch, 8, device="meta")


@torch.library.custom_op("precision_time_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.mark.parametrize(
    ("then", "advice"),
    [
        (lambda x: x if x.sum().item() > 0 else -x, "depends on values"),
        (lambda x: x[x.sum(1).nonzero()[:, 0]], "depends on values"),
        (lambda x: torch.ops.precision_time_tests.opaque(x), "register_fake"),
        (lambda x: x.cuda(), "leave out .cuda()"),
        (lambda x: x @ torch.ones(9, 9), "check --input"),
        (lambda x: x[x > 0], "depends on values"),
        (lambda x: x + torch.from_numpy(x.detach().numpy()), "torch operators"),
        (lambda x: torch.ops.no_such_library.fused(x), "import the library"),
        (lambda x: torch.cond(x.sum() > 0, torch.neg, torch.abs, (x,)), "that training takes"),
        (lambda x: torch.sparse.mm(torch.eye(4).to_sparse(), x), "use dense"),
    ],
    ids=[
        "item",
        "nonzero",
        "custom-operator",
        "device",
        "shapes",
        "mask",
        "numpy",
        "missing",
        "branch",
        "sparse",
    ],
)
def test_what_torch_cannot_trace_names_the_module_and_the_remedy(
    home: Path, then: Callable[[Any], Any], advice: str
) -> None:
    with pytest.raises(GraphError, match="Does") as caught:
        trace(nn.Sequential(Does(then)), rows(), name="mynet")
    assert advice in str(caught.value)


def test_an_unknown_operator_is_listed_and_priced_by_its_bytes(home: Path) -> None:
    network = Does(lambda x: torch.linalg.matrix_exp(x[:, None] * x[:, :, None]).sum((1, 2)))
    stored = trace(network, rows(), name="mynet", loss="sum")
    assert any("linalg_matrix_exp" in name for name in stored.model.unknown)
    graph = graph_of(stored.name, (), Workload(6))
    assert any(o.reads >= 6 * 64 for o in graph.operators)


def test_a_name_of_the_catalog_is_refused(home: Path) -> None:
    with pytest.raises(JobError, match="as this is for resnet50"):
        trace(small, images(), name="ResNet-50")


def test_sizes_that_run_other_operators_are_refused(home: Path) -> None:
    def unrolled(x: Any) -> Any:
        return sum(torch.tanh(x) for _ in range(x.shape[0]))

    stored = trace(Does(unrolled), rows(4), name="mynet")
    assert graph_of(stored.name, (), Workload(4)).operators
    with pytest.raises(GraphError, match="batch_size 4"):
        graph_of(stored.name, (), Workload(5))


def test_another_image_size_is_refused(home: Path) -> None:
    stored = trace(small, images(side=32), name="mynet")
    with pytest.raises(GraphError, match="image_size"):
        graph_of(stored.name, (), Workload(4, image_size=(64, 64)))


def test_a_file_that_others_could_write_is_not_read(home: Path) -> None:
    trace(small, images(), name="mynet")
    (home / "traced" / "mynet.json").chmod(0o666)
    with pytest.raises(ArtifactError, match="can be written by other users"):
        find_entry("mynet")


def test_a_changed_network_is_another_entry_and_the_old_one_is_gone(home: Path) -> None:
    old = trace(small, images(), name="mynet")
    new = trace(nn.Linear(8, 4), rows(), name="mynet")
    assert entry_of("mynet").name == new.name != old.name
    with pytest.raises(UnknownModelError):
        entry_of(old.name)


def test_inputs_of_several_batch_sizes_are_refused(home: Path) -> None:
    with pytest.raises(JobError, match="one batch size"):
        trace(small, (images(2), tokens(4, batch=3)), name="mynet")
