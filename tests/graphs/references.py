"""What the tests of graphs share: catalog entries as graphs, and reference networks' figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from predictor.graphs.builder import GraphBuilder
from predictor.graphs.families import builder_of
from predictor.graphs.operator import Graph, Workload

torch = pytest.importorskip("torch")

MODELS = Path(__file__).parents[2] / "profiles" / "models"
Catalog = dict[str, dict[str, Any]]
# name, reference network, sequence length, the network's inputs
Reference = tuple[str, Callable[[], Any], int | None, Callable[[], tuple[Any, ...]]]


def catalog_of(*topics: str) -> Catalog:
    return {
        name: entry
        for topic in topics
        for name, entry in yaml.load(
            (MODELS / f"{topic}.yaml").read_text(), yaml.CSafeLoader
        ).items()
    }


def graph_of_entry(
    catalog: Catalog, name: str, *, batch: int = 2, seq_len: int | None = None, **changes: Any
) -> Graph:
    """The graph of one entry at its default sizes; ``changes`` are to its architecture."""
    entry = catalog[name]
    defaults = entry["defaults"]
    image = defaults.get("image_size")
    work = Workload(
        batch, seq_len=seq_len or defaults.get("seq_len"), image_size=image and tuple(image)
    )
    b = GraphBuilder(work)
    builder_of(entry["family"])(b, **{**entry["architecture"], **changes})
    return b.build()


class Compared:
    """The tests of a catalog against reference networks, on batches of ``batch`` samples."""

    catalog: Catalog
    references: Sequence[Reference]
    batch = 2

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "network" in metafunc.fixturenames:
            names = [reference[0] for reference in self.references]
            metafunc.parametrize(
                ("name", "network", "length", "inputs"), self.references, ids=names
            )
        else:
            metafunc.parametrize("name", self.catalog)

    def test_parameters_are_those_of_the_network(
        self, name: str, network: Any, length: int | None, inputs: Any
    ) -> None:
        found = graph_of_entry(self.catalog, name).parameters
        assert found == parameters_of(network) == self.catalog[name]["parameters"]

    def test_forward_flops_are_those_of_the_network(
        self, name: str, network: Any, length: int | None, inputs: Any
    ) -> None:
        found = graph_of_entry(self.catalog, name, batch=self.batch, seq_len=length)
        assert found.forward_flops == pytest.approx(forward_flops_of(network, inputs), rel=0.01)

    def test_catalog_figures_are_those_of_the_graph(self, name: str) -> None:
        entry, found = self.catalog[name], graph_of_entry(self.catalog, name, batch=self.batch)
        gflops = found.forward_flops / self.batch / 1e9
        assert found.parameters == entry["parameters"]
        assert gflops == pytest.approx(entry["forward_gflops"], rel=0.01)


def parameters_of(network: Callable[[], Any]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in network().parameters())


def forward_flops_of(network: Callable[[], Any], inputs: Callable[[], tuple[Any, ...]]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        network()(*inputs())
    flops: int = counter.get_total_flops()
    return flops


def ids(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.long, device="meta")


def real(*shape: int) -> Any:
    return torch.empty(shape, device="meta")


def mlp(*widths: int) -> Any:
    return torch.nn.Sequential(*[torch.nn.Linear(a, c) for a, c in pairwise(widths)])
