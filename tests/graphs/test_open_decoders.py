"""Open decoder-only models: weights exactly those of transformers' modules, and their FLOPs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from references import catalog_of, forward_flops_of, graph_of_entry, ids, parameters_of

from predictor.graphs.catalog import entry_of

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
filling = pytest.importorskip("transformers.initialization")
warnings.filterwarnings("ignore", module="transformers")

CATALOG = catalog_of("decoders", "decoder-mixtures")
Sizes = Mapping[str, Any]


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
    model, config = next(c for start, c in CLASSES.items() if name.startswith(start))
    sizes = config({**CATALOG[name]["architecture"], **changes})
    with filling.no_init_weights():
        built = getattr(hf, model)._from_config(sizes, attn_implementation="eager")
    built.tie_weights()
    return built


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


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_torch_counts(name: str) -> None:
    seq_len = CATALOG[name]["defaults"]["seq_len"]
    counted = forward_flops_of(lambda: reference(name, layers=2), lambda: (ids(1, seq_len),))
    built = graph_of_entry(CATALOG, name, batch=1, layers=2)
    assert built.forward_flops == pytest.approx(counted, rel=0.01)
