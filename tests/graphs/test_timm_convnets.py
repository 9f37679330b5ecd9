"""timm's other convolutional networks: graphs agree with timm's figures and with their papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import profiles
from predictor.errors import GraphError
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import entry_of, find_entry
from predictor.graphs.families.inverted import mixed_conv
from predictor.graphs.operator import Direction, Graph, Kind, Operator
from predictor.graphs.recorder import Feature
from predictor.graphs.registry import builder_of
from predictor.graphs.workload import Workload

FILE = Path(profiles.__file__).parent / "models" / "timm-convnets.yaml"
NAMES = sorted(yaml.safe_load(FILE.read_text()))
ONE_OF_EACH = (
    "resnetv2-50",
    "resnetv2-50x1-bitm",
    "nfnet-l0",
    "dpn68b",
    "densenetblur121d",
    "xception65p",
    "inception-resnet-v2",
    "pnasnet5large",
    "ghostnet-100",
    "mixnet-s",
    "rexnet-100",
    "efficientnet-cc-b0-4e",
    "convnext-nano-ols",
    "convmixer-1536-20",
    "edgenext-xx-small",
)


def graph(name: str, batch: int = 1, size: int | None = None, **changes: Any) -> Graph:
    entry = entry_of(name)
    image = entry.image_size if size is None else (size, size)
    b = GraphBuilder(batch)
    builder_of(entry.family)(
        b, Workload(batch, image_size=image), **{**entry.architecture, **changes}
    )
    return b.build()


def forward(found: Graph, kind: Kind) -> list[Operator]:
    return [o for o in found.operators if o.kind is kind and o.direction is Direction.FORWARD]


def count(found: Graph, kind: Kind) -> float:
    return sum(o.count for o in forward(found, kind))


def launches(found: Graph) -> float:
    return sum(o.kernels * o.count for o in found.operators)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_timm(name: str) -> None:
    assert graph(name).parameters == entry_of(name).parameters


@pytest.mark.parametrize("name", NAMES)
def test_forward_flops_are_those_of_timm(name: str) -> None:
    stated = entry_of(name).forward_gflops
    assert graph(name).forward_flops / 1e9 == pytest.approx(stated, rel=0.002)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_work_grows_with_the_batch_and_the_image_but_weights_do_not(name: str) -> None:
    one, eight = graph(name), graph(name, 8)
    assert eight.forward_flops == pytest.approx(8 * one.forward_flops)
    assert (eight.parameters, launches(eight)) == (one.parameters, launches(one))
    size = entry_of(name).image_size
    assert size is not None
    larger = graph(name, size=2 * size[0])
    assert larger.parameters == one.parameters
    assert 3.5 < larger.forward_flops / one.forward_flops < 4.8


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_backward_is_about_twice_the_forward(name: str) -> None:
    found = graph(name, 4)
    backward = found.flops - found.forward_flops
    assert 1.85 * found.forward_flops < backward <= 2.01 * found.forward_flops


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("resnetv2-50", 153),
        ("resnetv2-50d-evos", 210),
        ("nf-resnet50", 161),
        ("dm-nfnet-f3", 845),
        ("nasnetalarge", 1018),
        ("pnasnet5large", 777),
        ("ghostnet-100", 272),
        ("mixnet-s", 249),
        ("rexnet-100", 227),
        ("efficientnet-cc-b0-4e", 229),
        ("edgenext-x-small", 214),
    ],
)
def test_weight_tensors_are_as_many_as_timm_has(name: str, tensors: int) -> None:
    assert graph(name).parameter_tensors == tensors


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("timm:resnetv2_50x1_bit", "resnetv2-50x1-bitm"),
        ("timm:tf_mixnet_m", "mixnet-m"),
        ("timm:legacy_xception", "xception"),
        ("timm:tf_efficientnet_cc_b0_8e", "efficientnet-cc-b0-8e"),
    ],
)
def test_other_names_of_the_same_network_resolve(name: str, same: str) -> None:
    entry = find_entry(name)
    assert entry is not None
    assert entry.name == same


# --- what the architectures are known for ------------------------------------------------------


def test_norm_free_networks_normalise_weights_only() -> None:
    small, large = graph("nfnet-l0", 2), graph("nfnet-l0", 16)
    norms = forward(small, Kind.BATCH_NORM)
    assert [o.dims for o in norms] == [o.dims for o in forward(large, Kind.BATCH_NORM)]
    assert sum(o.dims[0] * o.dims[1] * o.count for o in norms) < small.parameters
    gates = graph("nfnet-l0", attention="none")
    assert gates.parameters < small.parameters


def test_a_learned_skip_is_one_weight_per_block() -> None:
    with_skip, without = graph("dm-nfnet-f3"), graph("dm-nfnet-f3", learned_skip=False)
    assert with_skip.parameters - without.parameters == 4 + 8 + 24 + 12


def test_big_transfer_standardises_every_convolution_and_uses_group_norm() -> None:
    found = graph("resnetv2-50x1-bitm")
    assert count(found, Kind.BATCH_NORM) == count(found, Kind.CONV) == 1 + 3 * 16 + 4
    assert count(found, Kind.GROUP_NORM) == 3 * 16 + 1
    assert not forward(graph("resnetv2-50x1-bitm", norm="batch"), Kind.GROUP_NORM)


def test_evolved_norms_cost_more_launches_than_batch_norm() -> None:
    assert launches(graph("resnetv2-50d-evos")) > 1.5 * launches(graph("resnetv2-50d"))


def test_mixed_experts_convolve_each_sample_with_its_own_weights() -> None:
    b = GraphBuilder(8)
    plain = GraphBuilder(8).conv(Feature(16, (10, 10)), 32, 3, stride=2)
    assert mixed_conv(b, Feature(16, (10, 10)), 32, 3, 4, stride=2) == plain
    found = b.build()
    assert found.parameters == 4 * 32 * 16 * 9
    (conv,) = forward(found, Kind.CONV)
    assert conv.dims == (25, 32, 144, 8, 9, 4)
    (mix,) = forward(found, Kind.GEMM)
    assert mix.flops == 2 * 8 * 4 * 32 * 16 * 9


def test_more_experts_add_weights_but_hardly_any_flops() -> None:
    four, eight = graph("efficientnet-cc-b0-4e"), graph("efficientnet-cc-b0-8e")
    assert eight.parameters > 1.7 * four.parameters
    assert eight.forward_flops < 1.05 * four.forward_flops


def test_mixed_kernels_split_the_channels() -> None:
    depthwise = [o for o in forward(graph("mixnet-s"), Kind.CONV) if o.dims[4] == 121]
    assert [o.dims[3] for o in depthwise] == [720 // 5]


def test_a_ghost_module_makes_half_of_its_channels_cheaply() -> None:
    found = graph("ghostnet-100")
    cheap = [o for o in forward(found, Kind.CONV) if o.dims[3] > 1]
    assert sum(o.count for o in cheap) > 2 * 16
    assert sum(o.flops * o.count for o in cheap) < 0.2 * found.forward_flops


def test_the_edge_attention_is_between_channels() -> None:
    small, large = graph("edgenext-x-small", 2), graph("edgenext-x-small", 2, 512)
    for found in (small, large):
        assert count(found, Kind.SOFTMAX) == 3
        assert [o.dims for o in forward(found, Kind.SOFTMAX)] == [
            (2 * 4 * width // 4, width // 4) for width in (64, 100, 192)
        ]


def test_dual_path_blocks_grow_until_the_published_width() -> None:
    head = forward(graph("dpn98"), Kind.GEMM)[-1]
    assert head.dims == (1, 1000, 2688)


@pytest.mark.parametrize(("name", "width"), [("nasnetalarge", 4032), ("pnasnet5large", 4320)])
def test_cells_end_in_the_published_width(name: str, width: int) -> None:
    assert forward(graph(name), Kind.GEMM)[-1].dims == (1, 1000, width)


def test_unknown_choices_are_named() -> None:
    with pytest.raises(GraphError, match="quad, 3x3, 7x7"):
        graph("nfnet-l0", stem="5x5")
    with pytest.raises(GraphError, match="none, se, eca"):
        graph("nfnet-l0", attention="cbam")
    with pytest.raises(GraphError, match="pooled, aligned, preact"):
        graph("xception65", style="postact")
