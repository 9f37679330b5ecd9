"""A traced network is the network that the catalog builds without torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
from traced_networks import images, resnet50, tokens  # noqa: E402

from predictor.graphs.catalog import entry_of, graph_of  # noqa: E402
from predictor.graphs.operator import Direction, Graph, Kind  # noqa: E402
from predictor.graphs.workload import Workload  # noqa: E402
from predictor.trace import trace  # noqa: E402

warnings.filterwarnings("ignore", module="transformers")
EAGER = {"attn_implementation": "eager"}


def bert() -> Any:
    return hf.BertForPreTraining(hf.BertConfig(**EAGER))


def gpt2() -> Any:
    return hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False, **EAGER))


def llama() -> Any:
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True,
        use_cache=False, **EAGER,
    ))  # fmt: skip


def vit() -> Any:
    return hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000, **EAGER))


NETWORKS = [
    ("resnet50", resnet50, None), ("vit-base-16", vit, None), ("bert-base", bert, 128),
    ("gpt2-124m", gpt2, 128), ("llama3.2-1b", llama, 128),
]  # fmt: skip


def matrix_flops(graph: Graph) -> dict[tuple[Kind, Direction], float]:
    found: dict[tuple[Kind, Direction], float] = {}
    for o in graph.operators:
        if o.flops:
            key = o.kind, o.direction
            found[key] = found.get(key, 0.0) + o.flops * o.count
    return found


@pytest.mark.parametrize(("name", "network", "length"), NETWORKS, ids=[n[0] for n in NETWORKS])
def test_sizes_that_were_not_traced_are_those_of_the_builder(
    home: Path, name: str, network: Callable[[], Any], length: int | None
) -> None:
    examples = tokens(length) if length else images(side=224)
    stored = trace(network, examples, name=f"my-{name}", seq_len=length)
    entry = entry_of(name)
    work = Workload(11, seq_len=length and 3 * length, image_size=entry.image_size)
    changes = (("all_positions", "true"),) if name == "bert-base" else ()
    ours, built = graph_of(stored.name, (), work), graph_of(name, changes, work)
    assert ours.parameters == built.parameters
    assert ours.trainable_parameters == built.trainable_parameters
    assert matrix_flops(ours) == pytest.approx(matrix_flops(built), rel=0.01)
    assert stored.model.unknown == ()
