"""Text transformers: networks of transformers with the sizes of the catalog's entries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from predictor.graphs.catalog import Pairs

from .reference import TOKENS, Build, Reference, Sizes

hf: Any = import_module("transformers")  # its configurations are not typed


def _of(model: str, config: Any) -> torch.nn.Module:
    config.use_cache = False
    built: torch.nn.Module = getattr(hf, model)._from_config(config, attn_implementation="eager")
    return built


def _encoder(a: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": a["hidden"],
        "num_hidden_layers": a["layers"],
        "num_attention_heads": a["heads"],
        "intermediate_size": a.get("ffn", 4 * a["hidden"]),
    }


def bert(a: Sizes) -> torch.nn.Module:
    """BERT with both heads of pre-training."""
    return _of("BertForPreTraining", hf.BertConfig(**_encoder(a)))


def roberta(a: Sizes) -> torch.nn.Module:
    """RoBERTa with its language model."""
    config = hf.RobertaConfig(
        vocab_size=a["vocab"], max_position_embeddings=514, type_vocab_size=1, **_encoder(a)
    )
    return _of("RobertaForMaskedLM", config)


def distilbert(a: Sizes) -> torch.nn.Module:
    """DistilBERT with its language model."""
    config = hf.DistilBertConfig(dim=a["hidden"], n_layers=a["layers"], n_heads=a["heads"])
    return _of("DistilBertForMaskedLM", config)


def deberta(a: Sizes) -> torch.nn.Module:
    """DeBERTa v3 with a classifier of three classes."""
    config = hf.DebertaV2Config(
        vocab_size=128100,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        num_labels=3,
        **_encoder(a),
    )
    return _of("DebertaV2ForSequenceClassification", config)


class Electra(torch.nn.Module):
    """ELECTRA's two networks, which share their tables."""

    def __init__(self, a: Sizes) -> None:
        super().__init__()
        sizes = {"embedding_size": a["hidden"], "num_hidden_layers": a["layers"]}
        wide = hf.ElectraConfig(
            hidden_size=a["hidden"],
            num_attention_heads=a["heads"],
            intermediate_size=4 * a["hidden"],
            **sizes,
        )
        narrow = hf.ElectraConfig(
            hidden_size=a["hidden"] // 4,
            num_attention_heads=a["heads"] // 4,
            intermediate_size=a["hidden"],
            **sizes,
        )
        discriminator: Any = _of("ElectraForPreTraining", wide)
        generator: Any = _of("ElectraForMaskedLM", narrow)
        theirs = discriminator.electra.embeddings
        for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            setattr(generator.electra.embeddings, table, getattr(theirs, table))
        generator.tie_weights()
        self.networks = torch.nn.ModuleList([generator, discriminator])

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits of the generator, and of the discriminator on what it filled in."""
        generator, discriminator = self.networks
        filled: torch.Tensor = generator(input_ids).logits
        found = discriminator(filled.argmax(-1)).logits.unsqueeze(-1)
        return {"generator_logits": filled, "discriminator_logits": found}


def decoder(a: Sizes, **more: Any) -> dict[str, Any]:
    """Sizes that most configurations of decoders spell alike."""
    found = {
        "vocab_size": a["vocab"],
        "hidden_size": a["hidden"],
        "num_hidden_layers": a["layers"],
        "num_attention_heads": a["heads"],
        "num_key_value_heads": a.get("kv_heads", a["heads"]),
        "intermediate_size": a.get("ffn", 4 * a["hidden"]),
        "tie_word_embeddings": not a.get("untied_embeddings", False),
    }
    return found | ({"head_dim": a["head_dim"]} if "head_dim" in a else {}) | more


def _decoder(model: str, config: str, **more: Any) -> Build:
    return lambda a: _of(model, getattr(hf, config)(**decoder(a, **more)))


def gpt2(a: Sizes) -> torch.nn.Module:
    """GPT-2."""
    config = hf.GPT2Config(n_embd=a["hidden"], n_layer=a["layers"], n_head=a["heads"])
    return _of("GPT2LMHeadModel", config)


def opt(a: Sizes) -> torch.nn.Module:
    """OPT with learned positions."""
    config = hf.OPTConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        ffn_dim=4 * a["hidden"],
        word_embed_proj_dim=a["hidden"],
    )
    return _of("OPTForCausalLM", config)


def bloom(a: Sizes) -> torch.nn.Module:
    """BLOOM with ALiBi."""
    config = hf.BloomConfig(
        vocab_size=a["vocab"], hidden_size=a["hidden"], n_layer=a["layers"], n_head=a["heads"]
    )
    return _of("BloomForCausalLM", config)


def neox(a: Sizes) -> torch.nn.Module:
    """GPT-NeoX, as Pythia."""
    sizes = decoder(a)
    del sizes["num_key_value_heads"]
    return _of("GPTNeoXForCausalLM", hf.GPTNeoXConfig(**sizes))


def falcon(a: Sizes) -> torch.nn.Module:
    """Falcon without multi-query attention."""
    config = hf.FalconConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        num_kv_heads=a["heads"],
        alibi=True,
        bias=True,
        new_decoder_architecture=False,
        multi_query=False,
        parallel_attn=False,
    )
    return _of("FalconForCausalLM", config)


def gptj(a: Sizes) -> torch.nn.Module:
    """GPT-J with attention and feed-forward in parallel."""
    config = hf.GPTJConfig(
        vocab_size=a["vocab"],
        n_embd=a["hidden"],
        n_layer=a["layers"],
        n_head=a["heads"],
        tie_word_embeddings=False,
    )
    return _of("GPTJForCausalLM", config)


def t5(a: Sizes) -> torch.nn.Module:
    """T5 v1.0 or v1.1."""
    config = hf.T5Config(
        d_model=a["hidden"],
        d_ff=a["ffn"],
        num_layers=a["layers"],
        num_heads=a["heads"],
        d_kv=64,
        vocab_size=32128,
        tie_word_embeddings=a.get("tied", False),
        feed_forward_proj="gated-gelu" if a["activation"] == "geglu" else "relu",
    )
    built: Any = _of("T5ForConditionalGeneration", config)
    if not a.get("tied", False):  # transformers 5 ties the head of v1.1 too
        built.lm_head = torch.nn.Linear(a["hidden"], 32128, bias=False)
    return built  # type: ignore[no-any-return]


def bart(a: Sizes) -> torch.nn.Module:
    """BART."""
    config = hf.BartConfig(
        d_model=a["hidden"],
        encoder_layers=a["encoder_layers"],
        decoder_layers=a["decoder_layers"],
        encoder_attention_heads=a["heads"],
        decoder_attention_heads=a["heads"],
        encoder_ffn_dim=a["ffn"],
        decoder_ffn_dim=a["ffn"],
    )
    return _of("BartForConditionalGeneration", config)


def _text(name: str, build: Build, changes: Pairs = ()) -> Reference:
    return Reference(
        name=name, build=build, inputs=TOKENS, seq_len=128, changes=changes, depth=True
    )


def _pair(name: str, build: Build, target: int, *, depth: bool) -> Reference:
    inputs: dict[str, tuple[int | str, ...]] = {"input_ids": ("S",), "decoder_input_ids": (target,)}
    return Reference(name=name, build=build, inputs=inputs, seq_len=256, depth=depth)


LLAMA = _decoder("LlamaForCausalLM", "LlamaConfig")
EVERY = (("all_positions", "true"),)
NETWORKS = (
    _text("bert-base", bert, changes=EVERY),
    _text("bert-large", bert, changes=EVERY),
    _text("roberta-base", roberta),
    _text("distilbert-base", distilbert, changes=EVERY),
    _text("deberta-v3-small", deberta),
    _text("electra-base", Electra, changes=(("predictions", "128"),)),
    _text("gpt2-124m", gpt2),
    _text("distilgpt2", gpt2),
    _text("opt-125m", opt),
    _text("bloom-560m", bloom),
    _text("pythia-160m", neox),
    _text("falcon-rw-1b", falcon),
    _text("gpt-j-6b", gptj),
    _text("llama3.2-1b", LLAMA),
    _text("tinyllama-1.1b", LLAMA),
    _text("mistral-7b", _decoder("MistralForCausalLM", "MistralConfig", sliding_window=None)),
    _text("qwen2.5-0.5b", _decoder("Qwen2ForCausalLM", "Qwen2Config")),
    _text("qwen3-0.6b", _decoder("Qwen3ForCausalLM", "Qwen3Config")),
    _text("phi-2", _decoder("PhiForCausalLM", "PhiConfig")),
    _text("gemma-2b", _decoder("GemmaForCausalLM", "GemmaConfig")),
    _text("gemma-2-2b", _decoder("Gemma2ForCausalLM", "Gemma2Config")),
    _text("gemma-3-1b", _decoder("Gemma3ForCausalLM", "Gemma3TextConfig")),
    _text("olmo-2-1b", _decoder("Olmo2ForCausalLM", "Olmo2Config")),
    _text("stablelm-2-1.6b", _decoder("StableLmForCausalLM", "StableLmConfig", use_qkv_bias=True)),
    _text("starcoder2-3b", _decoder("Starcoder2ForCausalLM", "Starcoder2Config")),
    _pair("t5-small", t5, 114, depth=True),
    _pair("t5-v1.1-small", t5, 114, depth=True),
    _pair("bart-base", bart, 142, depth=False),
)
