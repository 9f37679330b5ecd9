"""Convolutional networks of timm: graphs agree with the catalog and with the papers."""

from __future__ import annotations

from typing import Any

import pytest

from predictor.errors import GraphError
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import ModelEntry, entries, entry_of
from predictor.graphs.operator import Direction, Graph, Kind
from predictor.graphs.registry import builder_of
from predictor.graphs.workload import Workload

FAMILIES = {
    "byobnet",
    "cspnet",
    "dla",
    "hrnet",
    "pruned_resnet",
    "selecsls",
    "split_resnet",
    "tresnet",
    "vovnet",
}
CATALOG = [entry.name for entry in entries() if entry.family in FAMILIES]


def graph(entry: ModelEntry, batch: int = 1, *, flash: bool = False, **changes: Any) -> Graph:
    b = GraphBuilder(batch)
    size = changes.pop("image_size", entry.image_size)
    work = Workload(batch, image_size=size, flash_attention=flash)
    builder_of(entry.family)(b, work, **{**entry.architecture, **changes})
    return b.build()


def launches(built: Graph) -> float:
    return sum(op.kernels * op.count for op in built.operators)


# --- the catalog's figures, read off timm ------------------------------------------------------


@pytest.mark.parametrize("name", CATALOG)
def test_parameters_and_flops_are_those_of_the_catalog(name: str) -> None:
    entry = entry_of(name)
    built = graph(entry)
    assert built.parameters == entry.parameters
    assert built.forward_flops / 1e9 == pytest.approx(entry.forward_gflops, rel=0.005)
    assert all(op.count >= 1 for op in built.operators)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("timm:botnet26t_256", 12.49),
        ("timm:lambda_resnet26rpt_256", 10.99),
        ("timm:haloregnetz_b", 11.68),
        ("timm:regnetz_d8_evos", 23.46),
        ("timm:regnetv_040", 20.64),
        ("timm:gernet_s", 8.17),
        ("timm:repvgg_b2g4", 61.76),
        ("timm:semobilevit_s", 5.74),
        ("timm:mobilevitv2_200_in22ft1k", 18.45),
        ("timm:cspdarknet53", 27.64),
        ("timm:dla169", 53.39),
        ("timm:dla60_res2next", 17.03),
        ("timm:resnest269e", 110.93),
        ("timm:skresnet18", 11.96),
        ("timm:gluon_senet154", 115.09),
        ("timm:ecaresnet101d_pruned", 24.88),
        ("timm:ese_vovnet39b_evos", 24.58),
        ("timm:hrnet_w48", 77.47),
        ("timm:selecsls84", 50.95),
        ("timm:tresnet_xl_448", 78.44),
    ],
)
def test_catalog_states_the_millions_of_parameters_of_the_training_benchmark(
    name: str, parameters: float
) -> None:
    found = entry_of(name).parameters
    assert found is not None
    assert found / 1e6 == pytest.approx(parameters, abs=0.0051)


@pytest.mark.parametrize("name", CATALOG)
def test_batch_scales_the_work_but_not_the_weights_or_launches(name: str) -> None:
    entry = entry_of(name)
    one, four = graph(entry), graph(entry, 4)
    assert four.forward_flops == pytest.approx(4 * one.forward_flops)
    assert four.input_elements == 4 * one.input_elements
    assert (four.parameters, launches(four)) == (one.parameters, launches(one))


# --- facts of the architectures ----------------------------------------------------------------


def test_a_table_of_relative_positions_grows_with_the_image() -> None:
    small = graph(entry_of("botnet26t_256"))
    large = graph(entry_of("botnet26t_256"), image_size=(512, 512))
    assert large.parameters - small.parameters == _offsets(512) - _offsets(256)
    assert large.forward_flops > 4 * small.forward_flops


def _offsets(image: int) -> int:
    """Position weights of a BoTNet-26: sides of 1/16, 1/16 and 1/32 of the image."""
    widths = ((image // 16, 256), (image // 16, 512), (image // 32, 512))
    return sum(2 * (2 * side - 1) * (channels // 4) for side, channels in widths)


def test_lambda_layers_share_no_weights_with_the_image_size_unless_they_hold_a_table() -> None:
    convolved, table = entry_of("lambda_resnet26t"), entry_of("lambda_resnet26rpt_256")
    large = (512, 512)
    assert graph(convolved, image_size=large).parameters == convolved.parameters
    assert graph(table, image_size=large).parameters > (table.parameters or 0)


def test_repvgg_trains_three_branches_of_which_one_is_a_bare_norm() -> None:
    built = graph(entry_of("repvgg_b2"))
    forward = [op for op in built.operators if op.direction is Direction.FORWARD]
    convolutions = sum(op.count for op in forward if op.kind is Kind.CONV)
    norms = sum(op.count for op in forward if op.kind is Kind.BATCH_NORM)
    assert convolutions == 2 * (1 + 4 + 6 + 16 + 1)
    assert norms - convolutions == 3 + 5 + 15


def test_grouped_repvgg_has_groups_in_every_second_block() -> None:
    built = graph(entry_of("repvgg_b2g4"))
    grouped = sum(
        op.count
        for op in built.operators
        if op.kind is Kind.CONV and op.direction is Direction.FORWARD and op.dims[3] == 4
    )
    assert grouped == 2 * (2 + 3 + 8)


def test_flash_attention_fuses_the_attention_of_mobilevit() -> None:
    entry = entry_of("mobilevit_s")
    plain, fused = graph(entry), graph(entry, flash=True)
    kinds = {op.kind for op in fused.operators}
    assert Kind.ATTENTION in kinds
    assert Kind.BATCHED_GEMM not in kinds
    assert launches(fused) < launches(plain)
    assert fused.forward_flops == pytest.approx(plain.forward_flops)


def test_mobilevit_interpolates_a_feature_map_that_patches_do_not_divide() -> None:
    entry = entry_of("mobilevit_s")
    assert launches(graph(entry, image_size=(288, 288))) > launches(graph(entry))


def test_res2net_trades_splits_for_launches_at_the_same_work() -> None:
    many, few = (graph(entry_of(n)) for n in ("res2net50_14w_8s", "res2net50_48w_2s"))
    assert launches(many) > 2.5 * launches(few)
    assert many.forward_flops == pytest.approx(few.forward_flops, rel=0.01)


def test_a_tree_of_more_levels_has_twice_the_blocks() -> None:
    def grouped(levels: list[int]) -> float:
        built = graph(entry_of("dla102x"), levels=levels)
        return sum(
            op.count
            for op in built.operators
            if op.kind is Kind.CONV and op.direction is Direction.FORWARD and op.dims[3] > 1
        )

    assert grouped([1, 1, 1, 3, 4, 1]) == 2 + 8 + 16 + 2
    assert grouped([1, 1, 1, 4, 4, 1]) == 2 + 16 + 16 + 2


def test_hrnet_keeps_its_finest_branch_at_a_quarter_of_the_image() -> None:
    built = graph(entry_of("hrnet_w32"))
    fine = sum(
        op.count
        for op in built.operators
        if op.kind is Kind.CONV
        and op.direction is Direction.FORWARD
        and op.dims[:3] == (56 * 56, 32, 32 * 9)
    )
    head = 1
    assert fine == (1 + 4 + 3) * 4 * 2 + head


def test_blur_filters_of_tresnet_have_no_weights_to_train() -> None:
    built = graph(entry_of("tresnet_m"))
    depthwise = [op for op in built.operators if op.kind is Kind.CONV and op.dims[3] > 1]
    assert {op.direction for op in depthwise} == {Direction.FORWARD, Direction.DATA_GRADIENT}
    assert built.trainable_parameters == built.parameters


def test_vovnet_concatenates_the_input_and_every_layer() -> None:
    built = graph(entry_of("ese_vovnet39b"))
    joined = 128 + 5 * 128
    assert any(
        op.kind is Kind.CONV and op.dims[:3] == (56 * 56, 256, joined) for op in built.operators
    )


def test_evonorm_costs_more_launches_than_batch_norm() -> None:
    plain, evo = (graph(entry_of(n)) for n in ("ese_vovnet39b", "ese_vovnet39b_evos"))
    assert launches(evo) > 2 * launches(plain)
    assert not any(op.kind is Kind.BATCH_NORM for op in evo.operators)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("resnext26ts", {"rows": [["sideways", 1, 64, 1, 0, 1]]}, "sideways"),
        ("resnext26ts", {"style": {"attention": "loud"}}, "loud"),
        ("botnet26t_256", {"spatial": {"kind": "round"}}, "round"),
        ("darknet53", {"stage": "light"}, "light"),
        ("dla34", {"block": "stone"}, "stone"),
        ("skresnet50", {"kind": "even"}, "even"),
        ("ese_vovnet39b", {"attention": "some"}, "some"),
    ],
)
def test_an_unknown_part_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph(entry_of(name), **changes)
