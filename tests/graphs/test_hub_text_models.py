"""Encoders, encoder-decoders and Mamba-2 of the hub: weights exactly those of transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from references import catalog_of, forward_flops_of, graph_of_entry, ids, parameters_of

pytest.importorskip("transformers")
warnings.filterwarnings("ignore", module="transformers")

from text_networks import (  # noqa: E402
    Electra,
    Sizes,
    bert,
    deberta,
    encoder_sizes,
    granite,
    hf,
    mamba2,
    nemotron_h,
    of_qwen,
    roberta,
    seq2seq,
    t5,
)

CATALOG = catalog_of("encoders", "encoder-decoders", "mamba")
FAMILIES: dict[str, Callable[[Sizes], Any]] = {
    "bert": lambda a: roberta(a) if "max_position" in a else bert(a),
    "deberta": deberta,
    "electra": Electra,
    "t5": t5,
    "seq2seq": lambda a: seq2seq("MBart", a, vocab_size=a["vocab"]),
    "mamba": lambda a: hybrid(a),
}


def hybrid(a: Sizes) -> Any:
    if "G" in a["hybrid_pattern"]:
        return of_qwen(a)
    if a["vocab"] == 100352:
        return granite(a)
    return nemotron_h(a) if "experts" in a else mamba2(a)


def gates(a: Sizes) -> int:
    """Weights of the gates of shared experts, which Qwen's have and the builder has not."""
    return a["hidden"] * a["hybrid_pattern"].count("E") if "G" in a.get("hybrid_pattern", "") else 0


@pytest.mark.parametrize("name", CATALOG)
def test_weights_are_those_of_the_reference(name: str) -> None:
    entry = CATALOG[name]
    reference = partial(FAMILIES[entry["family"]], entry["architecture"])
    built = graph_of_entry(CATALOG, name, batch=1).parameters
    left_out = gates(entry["architecture"])
    assert built == entry["parameters"] == parameters_of(reference) - left_out


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("qwen3.5-9b-text", "G-G-G-*-"),
        ("granite-4.0-h-micro", "M-M-*-"),
    ],
)
def test_flops_of_hybrids_are_those_torch_counts(name: str, pattern: str) -> None:
    reference = partial(hybrid, CATALOG[name]["architecture"] | {"hybrid_pattern": pattern})
    counted = forward_flops_of(reference, lambda: (ids(1, 1024),))
    built = graph_of_entry(CATALOG, name, batch=1, seq_len=1024, hybrid_pattern=pattern)
    assert built.forward_flops == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("name", [n for n in catalog_of("speech") if "xls-r" in n])
def test_wav2vec_weights_are_those_of_the_reference(name: str) -> None:
    entry = catalog_of("speech")[name]
    a = entry["architecture"]
    config = hf.Wav2Vec2Config(
        feat_extract_norm="layer",
        conv_bias=True,
        do_stable_layer_norm=True,
        codevector_dim=a["final_dim"],
        proj_codevector_dim=a["final_dim"],
        **encoder_sizes(a),
    )
    weights = parameters_of(lambda: hf.Wav2Vec2ForPreTraining(config))
    assert graph_of_entry({name: entry}, name, batch=1).parameters == weights == entry["parameters"]
