"""Encoders, encoder-decoders and Mamba-2 of the hub: weights exactly those of transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from references import catalog_of, graph_of_entry, parameters_of

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
warnings.filterwarnings("ignore", module="transformers")

CATALOG = catalog_of("encoders", "encoder-decoders", "mamba")
Sizes = Mapping[str, Any]


def encoder_sizes(a: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": a["hidden"],
        "num_hidden_layers": a["layers"],
        "num_attention_heads": a["heads"],
        "intermediate_size": a.get("ffn", 4 * a["hidden"]),
    }


def bert(a: Sizes) -> Any:
    return hf.BertForPreTraining(hf.BertConfig(vocab_size=a["vocab"], **encoder_sizes(a)))


def roberta(a: Sizes) -> Any:
    return hf.RobertaForMaskedLM(
        hf.RobertaConfig(
            vocab_size=a["vocab"],
            max_position_embeddings=514,
            type_vocab_size=1,
            **encoder_sizes(a),
        )
    )


def deberta(a: Sizes) -> Any:
    convolution = {"conv_kernel_size": 3, "conv_act": "gelu"} if "conv_kernel" in a else {}
    return hf.DebertaV2ForSequenceClassification(
        hf.DebertaV2Config(
            vocab_size=a.get("vocab", 128100),
            type_vocab_size=0,
            relative_attention=True,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            num_labels=3,
            **encoder_sizes(a),
            **convolution,
        )
    )


def electra(a: Sizes) -> Any:
    wide = {"embedding_size": a["hidden"], "num_hidden_layers": a["layers"]}
    discriminator = hf.ElectraForPreTraining(
        hf.ElectraConfig(hidden_size=1024, num_attention_heads=16, intermediate_size=4096, **wide)
    )
    generator = hf.ElectraForMaskedLM(
        hf.ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **wide)
    )
    generator.electra.embeddings.word_embeddings = discriminator.electra.embeddings.word_embeddings
    for table in ("position_embeddings", "token_type_embeddings"):
        setattr(
            generator.electra.embeddings, table, getattr(discriminator.electra.embeddings, table)
        )
    generator.tie_weights()
    return torch.nn.ModuleList([discriminator, generator])


def t5(a: Sizes) -> Any:
    layers, tied = a.get("layers", 0), a.get("tied", False)
    module = hf.T5ForConditionalGeneration(
        hf.T5Config(
            d_model=a["hidden"],
            d_ff=a["ffn"],
            num_heads=a["heads"],
            d_kv=a.get("head_dim", 64),
            num_layers=a.get("encoder_layers", layers),
            num_decoder_layers=a.get("decoder_layers", layers),
            vocab_size=a.get("vocab", 32128),
            feed_forward_proj="gated-gelu" if a["activation"] == "geglu" else "relu",
            tie_word_embeddings=tied,
        )
    )
    if not tied:  # transformers 5 ties the head of v1.1 too
        module.lm_head = torch.nn.Linear(a["hidden"], a.get("vocab", 32128), bias=False)
    return module


def mbart(a: Sizes) -> Any:
    return hf.MBartForConditionalGeneration(
        hf.MBartConfig(
            vocab_size=a["vocab"],
            d_model=a["hidden"],
            encoder_layers=a["encoder_layers"],
            decoder_layers=a["decoder_layers"],
            encoder_attention_heads=a["heads"],
            decoder_attention_heads=a["heads"],
            encoder_ffn_dim=a["ffn"],
            decoder_ffn_dim=a["ffn"],
        )
    )


def mamba2(a: Sizes) -> Any:
    return hf.Mamba2ForCausalLM(
        hf.Mamba2Config(
            hidden_size=a["hidden"],
            num_heads=a["hidden"] // 32,
            head_dim=64,
            n_groups=a["groups"],
            state_size=128,
            num_hidden_layers=len(a["hybrid_pattern"]),
            vocab_size=a["vocab"],
            tie_word_embeddings=True,
        )
    )


LAYERS = {"M": "linear_attention", "E": "moe", "*": "full_attention"}


def nemotron_h(a: Sizes) -> Any:
    latent = {"moe_latent_size": a["latent"]} if "latent" in a else {}
    return hf.NemotronHForCausalLM(
        hf.NemotronHConfig(
            vocab_size=a["vocab"],
            hidden_size=a["hidden"],
            layers_block_type=[LAYERS[letter] for letter in a["hybrid_pattern"]],
            num_attention_heads=a["heads"],
            num_key_value_heads=a["kv_heads"],
            head_dim=a["head_dim"],
            mamba_num_heads=a["mamba_heads"],
            n_routed_experts=a["experts"],
            num_experts_per_tok=a["topk"],
            moe_intermediate_size=a["moe_ffn"],
            moe_shared_expert_intermediate_size=a["shared_ffn"],
            **latent,
        )
    )


FAMILIES: dict[str, Callable[[Sizes], Any]] = {
    "deberta": deberta,
    "electra": electra,
    "t5": t5,
    "seq2seq": mbart,
    "mamba": lambda a: nemotron_h(a) if "experts" in a else mamba2(a),
}


def reference(name: str) -> Any:
    entry = CATALOG[name]
    sizes = entry["architecture"]
    if entry["family"] == "bert":
        return roberta(sizes) if "max_position" in sizes else bert(sizes)
    return FAMILIES[entry["family"]](sizes)


@pytest.mark.parametrize("name", CATALOG)
def test_weights_are_those_of_the_reference(name: str) -> None:
    built = graph_of_entry(CATALOG, name, batch=1).parameters
    assert built == CATALOG[name]["parameters"] == parameters_of(lambda: reference(name))


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
