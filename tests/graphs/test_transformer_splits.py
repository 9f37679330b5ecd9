"""What heads, adapters, mixtures, fused attention and a split over GPUs do to a text graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import profiles
from predictor.errors import GraphError
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.operator import Direction, Graph, Kind
from predictor.graphs.registry import builder_of
from predictor.graphs.workload import Workload

CATALOG: dict[str, dict[str, Any]] = {
    name: entry
    for topic in ("bert", "gpt", "seq2seq")
    for name, entry in yaml.safe_load(
        (Path(profiles.__file__).parent / "models" / f"{topic}.yaml").read_text()
    ).items()
}
FIXED = sorted(name for name, entry in CATALOG.items() if "parameters" in entry)


def graph(name: str, **changes: Any) -> Graph:
    entry = CATALOG[name]
    workload = {
        field: changes.pop(field)
        for field in ("seq_len", "flash_attention", "tensor_parallel", "pipeline_parallel")
        if field in changes
    }
    workload.setdefault("seq_len", entry["defaults"]["seq_len"])
    b = GraphBuilder(1)
    work = Workload(1, **workload)
    builder_of(entry["family"])(b, work, **{**entry["architecture"], **changes})
    return b.build()


@pytest.mark.parametrize("name", FIXED)
def test_catalog_states_what_the_graph_holds(name: str) -> None:
    entry, built = CATALOG[name], graph(name)
    assert built.parameters == entry["parameters"]
    assert built.forward_flops / 1e9 == pytest.approx(entry["forward_gflops"], rel=0.001)
    assert len(built.operators) < 400


def test_pretraining_predicts_20_positions_at_128_tokens_and_80_at_512() -> None:
    for seq_len, predictions in ((128, 20), (512, 80)):
        default = graph("bert-large", seq_len=seq_len)
        assert default == graph("bert-large", seq_len=seq_len, predictions=predictions)


def test_adapters_train_alone() -> None:
    full, adapted = graph("llama2-70b"), graph("llama2-70b-lora", seq_len=4096)
    rank, layers = 16, 80
    adapters = layers * rank * (8192 + (8192 + 2 * 1024) + 2 * 8192)
    assert adapted.trainable_parameters == adapters
    assert adapted.parameters == full.parameters + adapters
    assert adapted.flops < 0.75 * full.flops


@pytest.mark.parametrize("name", ["llama2-70b", "gpt3-175b", "mixtral-8x7b", "t5-v1.1-xxl"])
def test_tensor_parallelism_divides_the_flops(name: str) -> None:
    half = graph(name, tensor_parallel=2, vocab=32768).forward_flops
    assert 2 * half == pytest.approx(graph(name, vocab=32768).forward_flops, rel=0.01)


def test_pipeline_parallelism_divides_the_layers() -> None:
    stage = graph("gpt3-175b", pipeline_parallel=8)
    assert stage.parameters == graph("gpt3-175b", layers=12).parameters


def test_flash_attention_is_one_causal_operator() -> None:
    fused = graph("llama2-7b", flash_attention=True)
    forward = [
        op for op in fused.operators
        if op.kind is Kind.ATTENTION and op.direction is Direction.FORWARD
    ]  # fmt: skip
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
