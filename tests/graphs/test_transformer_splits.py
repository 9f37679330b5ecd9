"""What heads, adapters, mixtures, fused attention and a split over GPUs do to a text graph."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import profiles
from predictor.errors import GraphError
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.families import builder_of
from predictor.graphs.operator import Direction, Graph, Kind, Workload
from predictor.physics.parallel.stages import parts_of

CATALOG: dict[str, dict[str, Any]] = {
    name: entry
    for topic in ("bert", "gpt", "seq2seq")
    for name, entry in yaml.load(
        (Path(profiles.__file__).parent / "models" / f"{topic}.yaml").read_text(), yaml.CSafeLoader
    ).items()
}
FIXED = sorted(name for name, entry in CATALOG.items() if "parameters" in entry)


WORKLOAD = {field.name for field in fields(Workload)} - {"batch_size", "image_size"}


def graph(name: str, **changes: Any) -> Graph:
    entry = CATALOG[name]
    workload = {field: changes.pop(field) for field in WORKLOAD & set(changes)}
    workload.setdefault("seq_len", entry["defaults"]["seq_len"])
    work = Workload(1, **workload)
    if "finetune" in entry["architecture"]:
        return graph_of(name, (), work)
    b = GraphBuilder(work)
    builder_of(entry["family"])(b, **{**entry["architecture"], **changes})
    return b.build()


def test_catalog_states_what_the_graph_holds() -> None:
    """To a thousandth, where tests/cli/test_data.py allows a hundredth; equal layers stand once."""
    graphs = {name: graph(name) for name in FIXED}
    assert [
        name
        for name, built in graphs.items()
        if built.forward_flops / 1e9 != pytest.approx(CATALOG[name]["forward_gflops"], rel=0.001)
        or len(built.operators) >= 400
    ] == []


def test_pretraining_predicts_20_positions_at_128_tokens_and_80_at_512() -> None:
    for seq_len, predictions in ((128, 20), (512, 80)):
        default = graph("bert-large", seq_len=seq_len)
        assert default == graph("bert-large", seq_len=seq_len, predictions=predictions)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "ffn"),
    [("amplify-120m", 24, 640, 1712), ("amplify-350m", 32, 960, 2560)],
)
def test_amplify_attends_to_the_whole_protein(
    name: str, layers: int, hidden: int, ffn: int
) -> None:
    """amplify.py of chandar-lab/AMPLIFY: a gated layer of two thirds, a head of 27 residues."""
    built, tokens = graph_of(name, (), Workload(1, seq_len=512)), 512
    products = layers * (4 * hidden**2 + 3 * hidden * ffn)
    ends, norms = 2 * 27 * hidden + 27, (2 * layers + 1) * hidden
    assert built.parameters == products + ends + norms
    scores = layers * 4 * tokens**2 * hidden
    assert built.forward_flops == 2 * tokens * (products + 27 * hidden) + scores


def test_adapters_train_alone() -> None:
    work = Workload(1, seq_len=4096)
    full, adapted = graph_of("llama2-70b", (), work), graph_of("llama2-70b-lora", (), work)
    rank, layers = 16, 80
    adapters = layers * rank * (3 * 8192 + (8192 + 2 * 1024) + 2 * 8192)
    assert adapted.trainable_parameters == adapters
    assert adapted.parameters == full.parameters + adapters
    assert adapted.flops < 0.75 * full.flops


def test_adapters_beside_all_projections_are_those_of_peft() -> None:
    work = Workload(1, seq_len=64, adapter_rank=8, adapts_all=True)
    attention, gated = 4 * (4096 + 4096), 3 * (4096 + 11008)  # q, k, v, o; gate, up, down
    assert graph_of("llama2-7b", (), work).trainable_parameters == 32 * 8 * (attention + gated)
    plain = graph_of("gpt2-124m", (), work)
    assert plain.trainable_parameters == 12 * 8 * (
        (768 + 2304) + 2 * 768 + 2 * (768 + 3072) + 2 * 768
    )


@pytest.mark.parametrize("name", ["llama2-70b", "gpt3-175b", "mixtral-8x7b", "t5-v1.1-xxl"])
def test_tensor_parallelism_divides_the_flops(name: str) -> None:
    half = graph(name, tensor_parallel=2, vocab=32768).forward_flops
    assert 2 * half == pytest.approx(graph(name, vocab=32768).forward_flops, rel=0.01)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-7b", "bert-large", "t5-v1.1-xxl"])
def test_a_stage_has_its_share_of_the_layers_and_the_ends_keep_theirs(name: str) -> None:
    whole = parts_of(graph(name))
    held = [whole.stage_weights(stage, 1 / 4, 4) for stage in range(4)]
    copies = whole.head_weights if whole.tied else 0.0
    assert sum(held) == pytest.approx(whole.weights + copies, rel=1e-6)
    assert held[0] - held[1] == pytest.approx(whole.embedding_weights)
    assert held[3] - held[1] == pytest.approx(whole.head_weights)


def test_the_repeated_layers_of_a_decoder_are_its_body() -> None:
    built = graph("llama2-7b")
    first, end = parts_of(built).body
    assert parts_of(built).layers == 32
    assert {o.count for o in built.operators[first:end]} == {32.0}
    assert not any(o.count > 1 for o in (*built.operators[:first], *built.operators[end:]))


def test_a_network_without_repeated_layers_has_no_body() -> None:
    assert parts_of(graph_of("resnet50", (), Workload(1, image_size=(224, 224)))).body == (0, 0)


def test_sequence_parallelism_divides_norms_and_residuals_alone() -> None:
    apart, joint = (
        graph("llama2-7b", tensor_parallel=4, sequence_parallel=on) for on in (True, False)
    )
    products = {Kind.GEMM, Kind.BATCHED_GEMM}
    for one, other in zip(apart.operators, joint.operators, strict=True):
        assert (one.kind, one.count) == (other.kind, other.count)
        if one.kind is Kind.LAYER_NORM:
            assert one.reads == other.reads / 4
        if one.kind in products:
            assert one == other


def test_context_parallelism_divides_the_queries_and_not_the_keys() -> None:
    whole = graph("llama2-7b", seq_len=4096, flash_attention=True)
    part = graph("llama2-7b", seq_len=1024, context_parallel=4, flash_attention=True)
    assert part.flops == pytest.approx(whole.flops / 4, rel=1e-6)
    cores = [o for o in part.operators if o.kind is Kind.ATTENTION]
    assert {o.dims[:2] for o in cores} == {(1024, 4096)}


def test_experts_spread_over_gpus_hold_fewer_weights_and_as_many_tokens() -> None:
    alone, spread = graph("mixtral-8x7b"), graph("mixtral-8x7b", expert_parallel=8)
    assert spread.flops == pytest.approx(alone.flops, rel=0.01)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert alone.parameters - spread.parameters == experts * 7 // 8


def test_experts_in_one_kernel_do_the_same_work_in_fewer_products() -> None:
    apart, fused = (
        graph("mixtral-8x7b", expert_parallel=2, fused_layers=True, **{kind: True})
        for kind in ("grouped_experts", "fused_experts")
    )
    assert fused.flops == pytest.approx(apart.flops)
    assert fused.parameters == apart.parameters
    assert fused.parameter_tensors == apart.parameter_tensors

    def products(built: Graph) -> float:
        return sum(o.count for o in built.operators if o.kind is Kind.GEMM)

    assert products(apart) - products(fused) == 32 * 2 * 3 * (4 - 1)


def test_megatron_adds_the_biases_of_experts_in_full() -> None:
    """14 bytes read and 14 written forward, 22 and 14 back, by element in FP32 and BF16."""
    sizes = {"layers": 3, "hidden": 64, "heads": 2, "experts": 4, "topk": 2, "moe_ffn": 96}
    work = {"grouped_experts": True, "fused_layers": True, "seq_len": 128}

    def moved(*, bias: bool) -> float:
        built = graph("gpt2-style", bias=bias, **sizes, **work)
        copies = [o for o in built.operators if o.dims == (1, 2 * 128 * 64)]
        return sum((o.reads + o.writes) * o.count for o in copies)

    assert moved(bias=True) - moved(bias=False) == 3 * 2 * 128 * 64 * (7 + 7 + 11 + 7)


def test_one_kernel_scales_masks_and_normalises_a_multiple_of_four_score_matrices() -> None:
    """Megatron-LM's FusedScaleMaskSoftmax; other batches run scale and mask on their own."""

    def score_kernels(heads: int) -> int:
        built = graph("gpt2-style", fused_layers=True, layers=2, hidden=64 * heads, heads=heads)
        scores = heads * built.operators[-1].dims[0] ** 2
        return sum(o.reads == o.writes == scores for o in built.operators)

    assert score_kernels(4) < score_kernels(6)


def test_flash_attention_is_one_causal_operator() -> None:
    fused = graph("llama2-7b", flash_attention=True)
    forward = [
        op
        for op in fused.operators
        if op.kind is Kind.ATTENTION and op.direction is Direction.FORWARD
    ]
    assert [op.count for op in forward] == [32]
    scores = 2.0 * 2 * 4096 * 4096 * 4096 * 32
    saved = graph("llama2-7b").forward_flops - fused.forward_flops
    assert saved == pytest.approx(scores / 2)


def test_mixture_layers_follow_the_pattern() -> None:
    sizes = {"layers": 15, "hidden": 512, "heads": 8}
    mixed = graph("gpt-moe-style", moe_layer_freq="([0]*3+[1]*12)", **sizes)
    dense, all_mixed = graph("gpt-moe-style", experts=0, **sizes), graph("gpt-moe-style", **sizes)
    step = (all_mixed.parameters - dense.parameters) // 15
    assert mixed.parameters == dense.parameters + 12 * step
    with pytest.raises(GraphError, match="moe_layer_freq"):
        graph("gpt-moe-style", moe_layer_freq="some", **sizes)


def test_unknown_layer_letter_is_named() -> None:
    with pytest.raises(GraphError, match="X"):
        graph("mamba-hybrid-style", hybrid_pattern="MX", hidden=64, heads=1)


@pytest.mark.parametrize("name", ["bert-base", "llama2-7b", "vit-base-16"])
def test_adapters_of_any_network_leave_out_the_gradients_of_frozen_weights(name: str) -> None:
    full, adapted = whole(name), whole(name, adapter_rank=8)
    assert 2 / 3 < adapted.flops / full.flops < 0.75
    assert adapted.trainable_parameters < 0.02 * full.parameters
    assert adapted.parameters == full.parameters + adapted.trainable_parameters


@pytest.mark.parametrize("name", ["resnet50", "vit-base-16", "bert-base"])
def test_a_frozen_body_runs_forward_alone(name: str) -> None:
    full, head = whole(name), whole(name, frozen=True)
    assert head.forward_flops == full.forward_flops
    assert head.flops < 1.3 * full.forward_flops
    assert head.trainable_parameters < full.parameters


def whole(name: str, **more: Any) -> Graph:
    entry = entry_of(name)
    work = Workload(2, seq_len=entry.seq_len, image_size=entry.image_size, **more)
    return graph_of(name, (), work)
