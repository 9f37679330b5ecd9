"""Text transformers: networks of transformers with the sizes of the catalog's entries."""

from __future__ import annotations

from functools import partial

from predictor.graphs.catalog import Pairs
from tests.shared import text_networks as networks

from .reference import TOKENS, Build, Reference


def _text(name: str, build: Build | None = None, changes: Pairs = ()) -> Reference:
    """An encoder that is given, else a decoder."""
    return Reference(
        name=name,
        build=build or partial(networks.decoder, name),
        inputs=TOKENS,
        seq_len=128,
        changes=changes,
        depth=True,
    )


def _pair(name: str, build: Build, target: int, *, depth: bool) -> Reference:
    inputs: dict[str, tuple[int | str, ...]] = {"input_ids": ("S",), "decoder_input_ids": (target,)}
    return Reference(name=name, build=build, inputs=inputs, seq_len=256, depth=depth)


EVERY = (("all_positions", "true"),)
NETWORKS = (
    _text("bert-base", networks.bert, changes=EVERY),
    _text("bert-large", networks.bert, changes=EVERY),
    _text("roberta-base", networks.roberta),
    _text("distilbert-base", networks.distilbert, changes=EVERY),
    _text("deberta-v3-small", networks.deberta),
    _text("electra-base", networks.Electra, changes=(("predictions", "128"),)),
    _text("gpt2-124m"),
    _text("distilgpt2"),
    _text("opt-125m"),
    _text("bloom-560m"),
    _text("pythia-160m"),
    _text("falcon-rw-1b"),
    _text("gpt-j-6b"),
    _text("llama3.2-1b"),
    _text("tinyllama-1.1b"),
    _text("mistral-7b"),
    _text("qwen2.5-0.5b"),
    _text("qwen3-0.6b"),
    _text("phi-2"),
    _text("gemma-2b"),
    _text("gemma-2-2b"),
    _text("gemma-3-1b"),
    _text("olmo-2-1b"),
    _text("stablelm-2-1.6b"),
    _text("starcoder2-3b"),
    _pair("t5-small", networks.t5, 114, depth=True),
    _pair("t5-v1.1-small", networks.t5, 114, depth=True),
    _pair("bart-base", partial(networks.seq2seq, "Bart"), 142, depth=False),
)
