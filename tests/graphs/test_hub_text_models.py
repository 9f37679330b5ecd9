"""Encoders, encoder-decoders and Mamba-2 of the hub: weights exactly those of transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from references import catalog_of, graph_of_entry, parameters_of

pytest.importorskip("transformers")
warnings.filterwarnings("ignore", module="transformers")

from text_networks import (  # noqa: E402
    Electra,
    Sizes,
    bert,
    deberta,
    encoder_sizes,
    hf,
    mamba2,
    nemotron_h,
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
    "mamba": lambda a: nemotron_h(a) if "experts" in a else mamba2(a),
}


@pytest.mark.parametrize("name", CATALOG)
def test_weights_are_those_of_the_reference(name: str) -> None:
    entry = CATALOG[name]
    reference = partial(FAMILIES[entry["family"]], entry["architecture"])
    built = graph_of_entry(CATALOG, name, batch=1).parameters
    assert built == entry["parameters"] == parameters_of(reference)


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
