"""Open decoder-only models: weights exactly those of transformers' modules, and their FLOPs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from references import catalog_of, forward_flops_of, graph_of_entry, ids, parameters_of

from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.operator import Workload

pytest.importorskip("transformers")
warnings.filterwarnings("ignore", module="transformers")

from text_networks import built as made  # noqa: E402
from text_networks import decoder, hf  # noqa: E402

CATALOG = catalog_of("decoders", "decoder-mixtures")
# one of each architecture: FLOPs are counted operator by operator
COUNTED = (
    "qwen2.5-0.5b",
    "gemma-2-2b",
    "gemma-3-1b",
    "olmo-2-7b",
    "phi-2",
    "falcon-7b",
    "gpt-j-6b",
    "gpt-neo-1.3b",
    "stablelm-2-1.6b",
    "chatglm3-6b",
    "starcoder-15b",
)


def reference(name: str, **changes: Any) -> Any:
    """Transformers' module of an entry's sizes; call it under the meta device."""
    return decoder(name, {**CATALOG[name]["architecture"], **changes})


@pytest.mark.parametrize("name", CATALOG)
def test_weights_are_those_of_the_reference(name: str) -> None:
    built = graph_of_entry(CATALOG, name, batch=1).parameters
    left_out = 24 * 2048 if name == "qwen1.5-moe-a2.7b" else 0  # the gate of its shared expert
    assert built == CATALOG[name]["parameters"] == parameters_of(lambda: reference(name)) - left_out


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("chatglm3-6b", 6_243_584_000),
        ("baichuan2-7b", 7_505_973_248),
        ("baichuan2-13b", 13_896_668_160),
        ("qwen-7b", 7_721_324_544),
        ("starcoder", 15_517_456_384),
    ],
)
def test_weights_are_as_published(name: str, published: int) -> None:
    assert entry_of(name).parameters == published


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("codeparrot/codeparrot", 1.53e9),
        ("ibm-granite/granite-4.0-micro", 3_402_836_480),
        ("openbmb/MiniCPM4-8B", 8.19e9),
        ("moonshotai/Moonlight-16B-A3B", 15.96e9),
        ("zai-org/GLM-4.7-Flash", 29.9e9),  # 31.2 with the layer that predicts a token more
        ("swiss-ai/Apertus-70B-2509", 70.6e9),
    ],
)
def test_weights_of_names_with_sizes_of_their_own_are_as_published(
    name: str, published: float
) -> None:
    built = graph_of(entry_of(name).name, (), Workload(1, seq_len=128))
    assert built.parameters == pytest.approx(published, rel=0.003)


def test_the_weights_of_glm_4_7_flash_are_those_of_the_reference() -> None:
    reference = parameters_of(lambda: made("Glm4MoeLiteForCausalLM", hf.Glm4MoeLiteConfig()))
    built = graph_of(entry_of("zai-org/GLM-4.7-Flash").name, (), Workload(1, seq_len=128))
    assert built.parameters == reference


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_torch_counts(name: str) -> None:
    seq_len = CATALOG[name]["defaults"]["seq_len"]
    counted = forward_flops_of(lambda: reference(name, layers=2), lambda: (ids(1, seq_len),))
    built = graph_of_entry(CATALOG, name, batch=1, layers=2)
    assert built.forward_flops == pytest.approx(counted, rel=0.01)
