"""Text networks of transformers, each with the sizes of an entry of the catalog.

Made under torch's meta device they hold no weights: what they are counts, and what they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch

hf: Any = import_module("transformers")  # its configurations are not typed
filling: Any = import_module("transformers.initialization")
Sizes = Mapping[str, Any]


def built(model: str, config: Any) -> Any:
    """A network by transformers' class, with weights as they happen to be."""
    with filling.no_init_weights():
        made = getattr(hf, model)._from_config(config, attn_implementation="eager")
    made.tie_weights()
    return made


def encoder_sizes(a: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": a["hidden"],
        "num_hidden_layers": a["layers"],
        "num_attention_heads": a["heads"],
        "intermediate_size": a.get("ffn", 4 * a["hidden"]),
    }


def bert(a: Sizes) -> Any:
    return built(
        "BertForPreTraining", hf.BertConfig(vocab_size=a.get("vocab", 30522), **encoder_sizes(a))
    )


def roberta(a: Sizes) -> Any:
    config = hf.RobertaConfig(
        vocab_size=a["vocab"],
        max_position_embeddings=514,
        type_vocab_size=1,
        **encoder_sizes(a),
    )
    return built("RobertaForMaskedLM", config)


def distilbert(a: Sizes) -> Any:
    config = hf.DistilBertConfig(dim=a["hidden"], n_layers=a["layers"], n_heads=a["heads"])
    return built("DistilBertForMaskedLM", config)


def deberta(a: Sizes) -> Any:
    convolution = {"conv_kernel_size": 3, "conv_act": "gelu"} if "conv_kernel" in a else {}
    return built(
        "DebertaV2ForSequenceClassification",
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
        ),
    )


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
        discriminator = built("ElectraForPreTraining", wide)
        generator = built("ElectraForMaskedLM", narrow)
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


def t5(a: Sizes) -> Any:
    layers, tied = a.get("layers", 0), a.get("tied", False)
    module = built(
        "T5ForConditionalGeneration",
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
        ),
    )
    if not tied:  # transformers 5 ties the head of v1.1 too
        module.lm_head = torch.nn.Linear(a["hidden"], a.get("vocab", 32128), bias=False)
    return module


def seq2seq(kind: str, a: Sizes, **more: Any) -> Any:
    """BART or mBART."""
    config = getattr(hf, f"{kind}Config")(
        d_model=a["hidden"],
        encoder_layers=a["encoder_layers"],
        decoder_layers=a["decoder_layers"],
        encoder_attention_heads=a["heads"],
        decoder_attention_heads=a["heads"],
        encoder_ffn_dim=a["ffn"],
        decoder_ffn_dim=a["ffn"],
        **more,
    )
    return built(f"{kind}ForConditionalGeneration", config)


def mamba2(a: Sizes) -> Any:
    return built(
        "Mamba2ForCausalLM",
        hf.Mamba2Config(
            hidden_size=a["hidden"],
            num_heads=a["hidden"] // 32,
            head_dim=64,
            n_groups=a["groups"],
            state_size=128,
            num_hidden_layers=len(a["hybrid_pattern"]),
            vocab_size=a["vocab"],
            tie_word_embeddings=True,
        ),
    )


LAYERS = {"M": "linear_attention", "E": "moe", "*": "full_attention"}


def nemotron_h(a: Sizes) -> Any:
    latent = {"moe_latent_size": a["latent"]} if "latent" in a else {}
    return built(
        "NemotronHForCausalLM",
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
        ),
    )


def of_qwen(a: Sizes) -> Any:
    """Qwen3-Next and Qwen3.5: three gated delta rules, then attention."""
    pattern = a["hybrid_pattern"][::2]
    kinds = {"G": "linear_attention", "*": "full_attention"}
    sizes = common(
        {**a, "layers": len(pattern)},
        linear_num_key_heads=a["groups"],
        linear_num_value_heads=a["mamba_heads"],
        layer_types=[kinds[letter] for letter in pattern],
    )
    if "experts" not in a:
        return built("Qwen3_5ForCausalLM", hf.Qwen3_5TextConfig(**sizes))
    sizes |= {"num_experts": a["experts"], "num_experts_per_tok": a["topk"]}
    sizes |= {"moe_intermediate_size": a["moe_ffn"]}
    sizes |= {"shared_expert_intermediate_size": a["shared_ffn"]}
    if a["vocab"] == 151936:
        return built("Qwen3NextForCausalLM", hf.Qwen3NextConfig(**sizes))
    return built("Qwen3_5MoeForCausalLM", hf.Qwen3_5MoeTextConfig(**sizes))


def granite(a: Sizes) -> Any:
    pattern = a["hybrid_pattern"][::2]
    kinds = {"M": "linear_attention", "*": "full_attention"}
    return built(
        "GraniteMoeHybridForCausalLM",
        hf.GraniteMoeHybridConfig(
            **common({**a, "layers": len(pattern)}),
            layer_types=[kinds[letter] for letter in pattern],
            num_local_experts=a.get("experts", 0),
            num_experts_per_tok=a.get("topk", 0),
            shared_intermediate_size=a.get("shared_ffn", a["ffn"]),
            mamba_n_heads=a["mamba_heads"],
            mamba_d_head=a.get("mamba_head_dim", 64),
            mamba_d_state=128,
        ),
    )


def common(a: Sizes, **more: Any) -> dict[str, Any]:
    """Sizes that most configurations of transformers spell alike."""
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


def neox(a: Sizes) -> Any:
    sizes = common(a)
    del sizes["num_key_value_heads"]
    return hf.GPTNeoXConfig(**sizes)


def falcon(a: Sizes) -> Any:
    return hf.FalconConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        num_kv_heads=a.get("kv_heads", a["heads"]),
        new_decoder_architecture=a.get("kv_heads", 1) > 1,
        alibi=a["pos_emb"] == "alibi",
        bias=a["bias"],
        multi_query=a.get("kv_heads") == 1,
        parallel_attn="kv_heads" in a,
    )


def opt(a: Sizes) -> Any:
    return hf.OPTConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        ffn_dim=4 * a["hidden"],
        word_embed_proj_dim=a["hidden"],
    )


def bloom(a: Sizes) -> Any:
    return hf.BloomConfig(
        vocab_size=a["vocab"], hidden_size=a["hidden"], n_layer=a["layers"], n_head=a["heads"]
    )


def gpt2(a: Sizes) -> Any:
    return hf.GPT2Config(
        vocab_size=a.get("vocab", 50257),
        n_embd=a["hidden"],
        n_layer=a["layers"],
        n_head=a["heads"],
        n_positions=a.get("max_position", 2048),
    )


def bigcode(a: Sizes) -> Any:
    return hf.GPTBigCodeConfig(
        vocab_size=a["vocab"],
        n_embd=a["hidden"],
        n_layer=a["layers"],
        n_head=a["heads"],
        n_positions=a["max_position"],
    )


def gptj(a: Sizes) -> Any:
    return hf.GPTJConfig(
        vocab_size=a["vocab"],
        n_embd=a["hidden"],
        n_layer=a["layers"],
        n_head=a["heads"],
        tie_word_embeddings=False,
    )


def gpt_neo(a: Sizes) -> Any:
    return hf.GPTNeoConfig(
        hidden_size=a["hidden"],
        num_layers=a["layers"],
        num_heads=a["heads"],
        max_position_embeddings=a["max_position"],
        attention_types=[[["global", "local"], a["layers"] // 2]],
    )


def stablelm(a: Sizes) -> Any:
    return hf.StableLmConfig(**common(a, use_qkv_bias=a.get("qkv_bias", False)))


def nemotron(a: Sizes) -> Any:
    return hf.NemotronConfig(**common(a))


def qwen_moe(a: Sizes) -> Any:
    return hf.Qwen3MoeConfig(
        **common(
            a,
            num_experts=a["experts"],
            num_experts_per_tok=a["topk"],
            moe_intermediate_size=a["moe_ffn"],
        )
    )


def qwen_first_moe(a: Sizes) -> Any:
    return hf.Qwen2MoeConfig(
        **common(
            a,
            num_experts=a["experts"],
            num_experts_per_tok=a["topk"],
            moe_intermediate_size=a["moe_ffn"],
            shared_expert_intermediate_size=a["shared_ffn"],
        )
    )


def gpt_oss(a: Sizes) -> Any:
    more = {"num_local_experts": a["experts"], "num_experts_per_tok": a["topk"]}
    return hf.GptOssConfig(**common(a, **more))


def llama4(a: Sizes) -> Any:
    every, sizes = a.get("moe_layer_freq", 1), common(a)
    sizes |= {"intermediate_size": a["moe_ffn"], "intermediate_size_mlp": a["ffn"]}
    return hf.Llama4TextConfig(
        **sizes,
        num_local_experts=a["experts"],
        interleave_moe_layer_step=every,
        moe_layers=list(range(every - 1, a["layers"], every)),
    )


def mixtral(a: Sizes) -> Any:
    return hf.MixtralConfig(**common(a, num_local_experts=a["experts"]))


def deepseek(kind: Callable[..., Any]) -> Callable[[Sizes], Any]:
    def config(a: Sizes) -> Any:
        shared = a["shared_ffn"] // a["moe_ffn"]
        return kind(
            **common(
                a,
                n_routed_experts=a["experts"],
                num_experts_per_tok=a["topk"],
                n_shared_experts=shared,
                moe_intermediate_size=a["moe_ffn"],
                first_k_dense_replace=int(a["moe_layer_freq"][5:].partition("+")[0]),
                q_lora_rank=a["q_lora_rank"] or None,
                kv_lora_rank=a["kv_lora_rank"],
                qk_nope_head_dim=a["qk_head_dim"],
                qk_rope_head_dim=a["qk_rope_dim"],
                v_head_dim=a["v_head_dim"],
                head_dim=a["qk_rope_dim"],
                n_group=1,
                topk_group=1,
            )
        )

    return config


def mixture(config: Any, **more: str) -> Callable[[Sizes], Any]:
    """A configuration with the usual fields of a mixture, and ``more`` names of sizes of ours."""

    def made(a: Sizes) -> Any:
        width = a.get("moe_ffn", a["ffn"])
        return config(
            **common(a, num_experts_per_tok=a["topk"], moe_intermediate_size=width),
            attention_bias=a.get("qkv_bias", False),
            **{name: a[ours] for name, ours in more.items()},
            n_shared_experts=a.get("shared_ffn", 0) // width,
            first_k_dense_replace=dense_first(a),
            use_qk_norm=a.get("qk_layernorm", False),
        )

    return made


def dense_first(a: Sizes) -> int:
    return int(a.get("moe_layer_freq", "([0]*0+")[5:].partition("+")[0])


def ernie_moe(a: Sizes) -> Any:
    return hf.Ernie4_5_MoeConfig(
        **common(a),
        moe_num_experts=a["experts"],
        moe_k=a["topk"],
        moe_intermediate_size=a["moe_ffn"],
        moe_num_shared_experts=a.get("shared_ffn", 0) // a["moe_ffn"],
        moe_layer_start_index=dense_first(a),
    )


def phi_moe(a: Sizes) -> Any:
    more = {"num_local_experts": a["experts"], "attention_bias": True, "lm_head_bias": True}
    return hf.PhimoeConfig(**common(a, **more))


# one norm for both branches; phi-3 and phi-4 are Llama's network
PHI = ("phi-1", "phi-1.5", "phi-2")

# start of a name -> transformers' class of the language model, and its configuration
CLASSES: dict[str, tuple[str, Callable[[Sizes], Any]]] = {
    "pythia": ("GPTNeoXForCausalLM", neox),
    "dolly": ("GPTNeoXForCausalLM", neox),
    "gpt-neox": ("GPTNeoXForCausalLM", neox),
    "falcon-": ("FalconForCausalLM", falcon),
    "opt": ("OPTForCausalLM", opt),
    "bloom": ("BloomForCausalLM", bloom),
    "cerebras": ("GPT2LMHeadModel", gpt2),
    "distilgpt2": ("GPT2LMHeadModel", gpt2),
    "gpt2": ("GPT2LMHeadModel", gpt2),
    "gpt3": ("GPT2LMHeadModel", gpt2),
    "megatron": ("GPT2LMHeadModel", gpt2),
    "nemotron": ("NemotronForCausalLM", nemotron),
    "qwen2.5": ("Qwen2ForCausalLM", lambda a: hf.Qwen2Config(**common(a))),
    "qwen1.5-moe": ("Qwen2MoeForCausalLM", qwen_first_moe),
    "qwen1.5": ("Qwen2ForCausalLM", lambda a: hf.Qwen2Config(**common(a))),
    "chatglm": (
        "GlmForCausalLM",
        lambda a: hf.GlmConfig(**common(a, attention_bias=True, pad_token_id=0)),
    ),
    "starcoder-": ("GPTBigCodeForCausalLM", bigcode),
    "deepseek-r1-distill-qwen": ("Qwen2ForCausalLM", lambda a: hf.Qwen2Config(**common(a))),
    "gemma-2-": ("Gemma2ForCausalLM", lambda a: hf.Gemma2Config(**common(a))),
    "gemma-3-": ("Gemma3ForCausalLM", lambda a: hf.Gemma3TextConfig(**common(a))),
    "olmo-2": ("Olmo2ForCausalLM", lambda a: hf.Olmo2Config(**common(a))),
    "gpt-j": ("GPTJForCausalLM", gptj),
    "gpt-neo-": ("GPTNeoForCausalLM", gpt_neo),
    **{n: ("PhiForCausalLM", lambda a: hf.PhiConfig(**common(a))) for n in PHI},
    "gemma-": ("GemmaForCausalLM", lambda a: hf.GemmaConfig(**common(a))),
    "qwen3-30b": ("Qwen3MoeForCausalLM", qwen_moe),
    "qwen3-235b": ("Qwen3MoeForCausalLM", qwen_moe),
    "qwen3": ("Qwen3ForCausalLM", lambda a: hf.Qwen3Config(**common(a))),
    "starcoder2": ("Starcoder2ForCausalLM", lambda a: hf.Starcoder2Config(**common(a))),
    "stablelm": ("StableLmForCausalLM", stablelm),
    "gpt-oss": ("GptOssForCausalLM", gpt_oss),
    "llama4": ("Llama4ForCausalLM", llama4),
    "mistral": (
        "MistralForCausalLM",
        lambda a: hf.MistralConfig(**common(a, sliding_window=None)),
    ),
    "mixtral": ("MixtralForCausalLM", mixtral),
    "deepseek-v2": ("DeepseekV2ForCausalLM", deepseek(hf.DeepseekV2Config)),
    "deepseek-v3": ("DeepseekV3ForCausalLM", deepseek(hf.DeepseekV3Config)),
    "kimi-k2": ("DeepseekV3ForCausalLM", deepseek(hf.DeepseekV3Config)),
    "smollm3": ("SmolLM3ForCausalLM", lambda a: hf.SmolLM3Config(**common(a))),
    "olmo-3": ("Olmo3ForCausalLM", lambda a: hf.Olmo3Config(**common(a))),
    "seed-oss": ("SeedOssForCausalLM", lambda a: hf.SeedOssConfig(**common(a))),
    "glm-4-": (
        "Glm4ForCausalLM",
        lambda a: hf.Glm4Config(**common(a, attention_bias=a.get("qkv_bias", False))),
    ),
    "ministral-3": ("Ministral3ForCausalLM", lambda a: hf.Ministral3Config(**common(a))),
    "ernie-4.5-0.3b": ("Ernie4_5ForCausalLM", lambda a: hf.Ernie4_5Config(**common(a))),
    "ernie": ("Ernie4_5_MoeForCausalLM", ernie_moe),
    "glm-4.5": ("Glm4MoeForCausalLM", mixture(hf.Glm4MoeConfig, n_routed_experts="experts")),
    "minimax": ("MiniMaxM2ForCausalLM", mixture(hf.MiniMaxM2Config, num_local_experts="experts")),
    "olmoe": ("OlmoeForCausalLM", mixture(hf.OlmoeConfig, num_experts="experts")),
    "dots": ("Dots1ForCausalLM", mixture(hf.Dots1Config, n_routed_experts="experts")),
    "phi-3.5-moe": ("PhimoeForCausalLM", phi_moe),
    "": ("LlamaForCausalLM", lambda a: hf.LlamaConfig(**common(a))),
}


def decoder(name: str, a: Sizes) -> Any:
    """The network of a decoder of the catalog, by how its name begins."""
    model, config = next(c for start, c in CLASSES.items() if name.startswith(start))
    return built(model, config(a))
