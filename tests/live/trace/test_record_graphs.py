"""The command that records networks of libraries: its laws give what is traced at other sizes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from library_networks import Network, pixels  # noqa: E402
from record_graphs import LibraryNetwork, record  # noqa: E402
from recording_laws import BATCH, operator_laws, packed, with_batch  # noqa: E402

from predictor.graphs.families.stored import value  # noqa: E402
from predictor.measure.trace.laws import holds  # noqa: E402
from predictor.measure.trace.mapping import mapped  # noqa: E402

nn = torch.nn


class Classifier(nn.Module):
    """A convolution, attention over positions, and two tables as large as the image, one kept."""

    def __init__(self, side: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.positions = nn.Parameter(torch.empty(1, (side // 8) ** 2, width))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, 10)
        self.distances: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2) + self.positions
        if self.distances is None:
            places = torch.arange(x.shape[1])
            self.distances = (places[None] - places[:, None]).abs()
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def classifier() -> LibraryNetwork:
    """A network of a library that makes another for another image."""
    return LibraryNetwork("mine/classifier", Network(Classifier, pixels, 64, sized=True))


def test_laws_give_what_is_traced_with_another_batch_and_image() -> None:
    network = classifier()
    found = record(network, 64)
    traced = mapped(network.calls(416, 48)).operators
    laws = operator_laws(
        lambda b, s: mapped(with_batch(network.calls(s, BATCH), b)).operators,
        [64, 96, 128],
        (0, 1, 2),
        (0, 2, 4),
    )
    assert found.any_side
    assert laws is not None
    assert holds(laws, traced, (48, 416))


def test_weights_follow_the_image_where_the_library_makes_them_so() -> None:
    found = record(classifier(), 64)
    for side in (64, 256):
        expected = sum(p.numel() for p in Classifier(side).parameters())
        assert value(found.weights["parameters"], 1, side) == expected


def test_flops_are_those_that_torch_counts() -> None:
    network = classifier()
    found = record(network, 64)
    ours = sum(value(o.flops, 2, 64) * o.count for o in found.operators if o.direction == "forward")
    assert ours == pytest.approx(network.flops(64), rel=1e-9)


def test_a_network_of_timm_is_recorded_as_it_is_stored() -> None:
    pytest.importorskip("timm")
    from profiles.recordings import manifest, path_of

    if torch.__version__.partition("+")[0] != manifest()["libraries"]["torch"]:
        pytest.skip("another torch")
    name = "timm/edgenext_xx_small"
    found = record(LibraryNetwork(name), 256)
    assert packed(256, found.any_side, found.weights, found.operators) == path_of(name).read_bytes()
