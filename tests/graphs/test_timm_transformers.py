"""Image transformers of timm: graphs agree with the catalog's figures, read off timm's modules."""

from __future__ import annotations

import time
from typing import Any

import pytest

from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import entries, entry_of
from predictor.graphs.operator import Direction, Graph, Kind
from predictor.graphs.registry import builder_of
from predictor.graphs.workload import Workload

FAMILIES = {
    "xcit",
    "swin_v2",
    "swin_v2_cr",
    "vit_hybrid",
    "vit_relpos",
    "vit_parallel",
    "mixer",
    "cait",
    "pit",
    "crossvit",
    "levit",
    "nest",
    "poolformer",
    "volo",
    "coat_lite",
    "convit",
    "twins_svt",
    "sequencer2d",
    "tnt",
}
CATALOG = [entry.name for entry in entries() if entry.family in FAMILIES]
PER_FAMILY = list({entry_of(name).family: name for name in CATALOG}.values())
# whose weights or structure depend on the number of positions
SIZED = {
    "vit_hybrid",
    "vit_parallel",
    "mixer",
    "cait",
    "pit",
    "crossvit",
    "levit",
    "nest",
    "volo",
    "convit",
    "tnt",
}


def graph(name: str, batch: int = 1, *, flash: bool = False, scale: int = 1) -> Graph:
    entry = entry_of(name)
    assert entry.image_size is not None
    size = tuple(scale * n for n in entry.image_size)
    b = GraphBuilder(batch)
    work = Workload(batch, image_size=size, flash_attention=flash)
    builder_of(entry.family)(b, work, **entry.architecture)
    return b.build()


def forward(built: Graph, kind: Kind) -> dict[tuple[int, ...], float]:
    counts: dict[tuple[int, ...], float] = {}
    for op in built.operators:
        if op.kind is kind and op.direction is Direction.FORWARD:
            counts[op.dims] = counts.get(op.dims, 0) + op.count
    return counts


@pytest.mark.parametrize("name", CATALOG)
def test_parameters_and_flops_are_those_of_timm(name: str) -> None:
    entry, built = entry_of(name), graph(name)
    assert built.parameters == entry.parameters
    assert built.forward_flops / 1e9 == pytest.approx(entry.forward_gflops, rel=0.001)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("timm:xcit_large_24_p8_384_dist", 188.93),
        ("timm:volo_d5_448", 295.91),
        ("timm:swinv2_large_window12to24_192to384_22kft1k", 196.74),
        ("timm:swinv2_cr_huge_384", 657.94),
        ("timm:vit_base_r50_s16_224", 98.66),
        ("timm:mixer_b16_224_miil", 59.88),
        ("timm:tnt_b_patch16_224", 65.41),
        ("timm:jx_nest_base", 67.72),
        ("timm:cait_m48_448", 356.46),
    ],
)
def test_names_of_measurements_have_the_parameters_printed_there(
    name: str, millions: float
) -> None:
    assert graph(name).parameters / 1e6 == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize("name", PER_FAMILY)
def test_cost_grows_with_batch_and_image(name: str) -> None:
    one, eight = graph(name), graph(name, 8)
    assert eight.parameters == one.parameters
    assert 7 * one.forward_flops < eight.forward_flops <= 8 * one.forward_flops
    assert 5 * traffic(one) < traffic(eight) <= 8 * traffic(one)
    large = graph(name, scale=2)
    assert large.forward_flops > 3 * one.forward_flops
    assert (large.parameters > one.parameters) == (entry_of(name).family in SIZED)


def traffic(built: Graph) -> float:
    """Elements written by the activations' operators (weights do not grow with the batch)."""
    return sum(op.writes * op.count for op in built.operators if op.direction is Direction.FORWARD)


@pytest.mark.parametrize("name", PER_FAMILY)
def test_backward_costs_twice_the_forward(name: str) -> None:
    built = graph(name, 8)
    assert built.flops == pytest.approx(3 * built.forward_flops, rel=0.06)


@pytest.mark.parametrize("name", PER_FAMILY)
def test_graph_is_small_and_fast_to_build(name: str) -> None:
    assert len(graph(name).operators) < 700
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        graph(name)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01


# --- facts of single architectures --------------------------------------------------------------


def test_xcit_scores_are_between_channels_whatever_the_image() -> None:
    small, large = (graph("xcit_small_12_p16_224", scale=s) for s in (1, 2))
    for built, positions in ((small, 196), (large, 784)):
        assert forward(built, Kind.BATCHED_GEMM)[(48, 48, positions, 8)] == 12


def test_swin_v2_windows_shift_in_half_of_the_blocks_of_large_maps() -> None:
    attention = forward(graph("swinv2_tiny_window8_256", flash=True), Kind.ATTENTION)
    assert attention == {
        (64, 64, 32, 64 * 3): 2,
        (64, 64, 32, 16 * 6): 2,
        (64, 64, 32, 4 * 12): 6,
        (64, 64, 32, 24): 2,
    }


def test_position_network_of_swin_v2_cr_runs_on_pairs_and_not_on_samples() -> None:
    for batch in (1, 4):
        rows = {dims[0] for dims in forward(graph("swinv2_cr_tiny_224", batch), Kind.GEMM)}
        assert 7**4 in rows


def test_shared_positions_are_computed_once() -> None:
    def networks(name: str) -> float:
        return sum(n for d, n in forward(graph(name), Kind.GEMM).items() if d[0] == 27 * 27)

    assert networks("vit_srelpos_medium_patch16_224") == 2
    assert networks("vit_relpos_medium_patch16_224") == 24


def test_class_attention_has_one_query() -> None:
    attention = forward(graph("cait_s24_224", 2, flash=True), Kind.ATTENTION)
    assert attention == {(1, 197, 48, 16): 2}


def test_hybrid_has_as_many_tokens_as_the_backbone_has_positions() -> None:
    attention = forward(graph("vit_base_r50_s16_224", flash=True), Kind.ATTENTION)
    assert attention == {(197, 197, 64, 12): 12}


def test_pit_halves_the_map_between_stages() -> None:
    attention = forward(graph("pit_s_224", flash=True), Kind.ATTENTION)
    assert attention == {(730, 730, 48, 3): 2, (197, 197, 48, 6): 6, (50, 50, 48, 12): 4}


def test_crossvit_branches_exchange_three_times() -> None:
    attention = forward(graph("crossvit_15_240", flash=True), Kind.ATTENTION)
    assert attention == {
        (401, 401, 32, 6): 3,
        (197, 197, 64, 6): 15,
        (1, 401, 32, 6): 3,
        (1, 197, 64, 6): 3,
    }


def test_twins_alternates_windows_and_a_coarse_map() -> None:
    attention = forward(graph("twins_svt_small", flash=True), Kind.ATTENTION)
    assert attention[(49, 49, 32, 64 * 2)] == 1
    assert attention[(3136, 49, 32, 2)] == 1
    assert attention[(196, 49, 32, 8)] == 5


def test_sequencer_runs_along_rows_and_columns_in_both_directions() -> None:
    recurrent = forward(graph("sequencer2d_s"), Kind.RNN)
    assert recurrent == {(32, 32, 48, 4): 4 * 4, (16, 16, 96, 4): (3 + 8 + 3) * 4}


def test_poolformer_has_no_attention() -> None:
    kinds: set[Any] = {op.kind for op in graph("poolformer_s36").operators}
    assert not kinds & {Kind.ATTENTION, Kind.SOFTMAX, Kind.BATCHED_GEMM}


def test_coat_shares_position_convolutions_inside_a_stage() -> None:
    """A stage of one layer has as many depthwise weights as one of three."""
    b1, b3 = GraphBuilder(1), GraphBuilder(1)
    for b, depth in ((b1, 1), (b3, 3)):
        work = Workload(1, image_size=(224, 224))
        builder_of("coat_lite")(b, work, widths=[64], depths=[depth], ffn_ratios=[4])
    layer = 3 * 64 * 64 + 3 * 64 + 64 * 64 + 64 + 2 * (4 * 64 * 64) + 5 * 64 + 4 * 64
    assert b3.build().parameters - b1.build().parameters == 2 * layer
