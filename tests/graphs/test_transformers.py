"""Transformers for text: weights exactly and FLOPs within 1 % of transformers' own modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import profiles
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.families import builder_of
from predictor.graphs.operator import Graph, Workload

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
filling = pytest.importorskip("transformers.initialization")
counter = pytest.importorskip("torch.utils.flop_counter")
warnings.filterwarnings("ignore", module="transformers")

CATALOG: dict[str, dict[str, Any]] = {
    name: entry
    for topic in ("bert", "gpt", "seq2seq")
    for name, entry in yaml.load(
        (Path(profiles.__file__).parent / "models" / f"{topic}.yaml").read_text(), yaml.CSafeLoader
    ).items()
}


def graph(name: str, **changes: Any) -> Graph:
    entry = CATALOG[name]
    work = Workload(1, seq_len=changes.pop("seq_len", entry["defaults"]["seq_len"]))
    b = GraphBuilder(work)
    builder_of(entry["family"])(b, **{**entry["architecture"], **changes})
    return b.build()


def meta(model: str, config: Any) -> Any:
    with torch.device("meta"), filling.no_init_weights():
        built = getattr(hf, model)._from_config(config, attn_implementation="eager")
    built.tie_weights()
    return built.train()


def weights(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def flops(module: Any, **lengths: int) -> float:
    ids = {k: torch.zeros(1, n, dtype=torch.long, device="meta") for k, n in lengths.items()}
    with counter.FlopCounterMode(display=False) as count:
        module(**ids)
    return float(count.get_total_flops())


def bert(**sizes: Any) -> Any:
    return meta("BertForPreTraining", hf.BertConfig(**sizes))


def roberta(**sizes: Any) -> Any:
    config = hf.RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, **sizes
    )
    return meta("RobertaForMaskedLM", config)


def gpt2(layers: int, hidden: int, heads: int, **more: Any) -> Any:
    return meta(
        "GPT2LMHeadModel", hf.GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads, **more)
    )


def llama(name: str) -> Any:
    a = CATALOG[name]["architecture"]
    config = hf.LlamaConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        intermediate_size=a["ffn"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        num_key_value_heads=a.get("kv_heads", a["heads"]),
        tie_word_embeddings=not a["untied_embeddings"],
    )
    return meta("LlamaForCausalLM", config)


def mpt(name: str) -> Any:
    a = CATALOG[name]["architecture"]
    config = hf.MptConfig(
        d_model=a["hidden"], n_heads=a["heads"], n_layers=a["layers"], vocab_size=a["vocab"]
    )
    return meta("MptForCausalLM", config)


def nemotron(name: str) -> Any:
    a = CATALOG[name]["architecture"]
    config = hf.NemotronConfig(
        vocab_size=a["vocab"],
        hidden_size=a["hidden"],
        intermediate_size=4 * a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        num_key_value_heads=a.get("kv_heads", a["heads"]),
    )
    return meta("NemotronForCausalLM", config)


def t5(name: str) -> Any:
    a = CATALOG[name]["architecture"]
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
    module = meta("T5ForConditionalGeneration", config)
    if not a.get("tied", False):  # transformers 5 ties the head of v1.1 too
        module.lm_head = torch.nn.Linear(a["hidden"], 32128, bias=False, device="meta")
    return module


def bart(layers: int, hidden: int, heads: int) -> Any:
    config = hf.BartConfig(
        d_model=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * hidden,
        decoder_ffn_dim=4 * hidden,
    )
    return meta("BartForConditionalGeneration", config)


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
SUMMARY = {"input_ids": 1024, "decoder_input_ids": 142}
SPANS = {"input_ids": 512, "decoder_input_ids": 114}
EVERY = {"all_positions": True}
ALIBI = {"pos_emb": "alibi"}  # transformers' MPT has no table of learned positions

# name -> reference module, lengths of its inputs, changes that make the graph the same network
REFERENCES: dict[str, tuple[Callable[[], Any], dict[str, int], dict[str, Any]]] = {
    "bert-base": (bert, {"input_ids": 128}, EVERY),
    "bert-large": (lambda: bert(**LARGE), {"input_ids": 128}, EVERY),
    "distilbert-base": (
        lambda: meta("DistilBertForMaskedLM", hf.DistilBertConfig()),
        {"input_ids": 128},
        EVERY,
    ),
    "roberta-base": (roberta, {"input_ids": 512}, {}),
    "roberta-large": (lambda: roberta(**LARGE), {"input_ids": 512}, {}),
    "gpt2-124m": (lambda: gpt2(12, 768, 12), {"input_ids": 1024}, {}),
    "gpt2-355m": (lambda: gpt2(24, 1024, 16), {"input_ids": 1024}, {}),
    "gpt2-774m": (lambda: gpt2(36, 1280, 20), {"input_ids": 1024}, {}),
    "gpt2-1558m": (lambda: gpt2(48, 1600, 25), {"input_ids": 1024}, {}),
    "gpt3-175b": (
        lambda: gpt2(96, 12288, 96, vocab_size=51200, n_positions=2048),
        {"input_ids": 2048},
        {},
    ),
    "opt-1.3b": (
        lambda: meta(
            "OPTForCausalLM",
            hf.OPTConfig(
                hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32
            ),
        ),
        {"input_ids": 2048},
        {},
    ),
    "bloom-176b": (
        lambda: meta(
            "BloomForCausalLM",
            hf.BloomConfig(vocab_size=250880, hidden_size=14336, n_layer=70, n_head=112),
        ),
        {"input_ids": 2048},
        {},
    ),
    "mpt-125m": (lambda: mpt("mpt-125m"), {"input_ids": 2048}, ALIBI),
    "mpt-7b": (lambda: mpt("mpt-7b"), {"input_ids": 2048}, ALIBI),
    "bart-base": (lambda: bart(6, 768, 12), SUMMARY, {}),
    "bart-large": (lambda: bart(12, 1024, 16), SUMMARY, {}),
    **{
        name: (lambda name=name: llama(name), {"input_ids": 4096}, {})
        for name in (
            "llama2-7b",
            "llama2-13b",
            "llama2-70b",
            "llama3-8b",
            "llama3-70b",
            "llama3.1-405b",
            "llama3.2-3b",
            "tinyllama-1.1b",
            "mistral-7b",
            "llama-34b",
            "internlm-7b",
        )
    },
    **{
        name: (lambda name=name: nemotron(name), {"input_ids": 4096}, {})
        for name in ("nemotron-8b", "nemotron-22b")
    },
    **{
        name: (lambda name=name: t5(name), SPANS, {})
        for name in (
            "t5-small",
            "t5-base",
            "t5-large",
            "t5-v1.1-small",
            "t5-v1.1-large",
            "t5-v1.1-xxl",
        )
    },
}


@pytest.fixture(scope="module")
def reference() -> Callable[[str], Any]:
    built: dict[str, Any] = {}
    return lambda name: built.setdefault(name, REFERENCES[name][0]())


@pytest.mark.parametrize("name", REFERENCES)
def test_weights_are_those_of_the_reference(name: str, reference: Callable[[str], Any]) -> None:
    _, _, changes = REFERENCES[name]
    assert graph(name, **changes).parameters == weights(reference(name))


def flops_of_all_layers(module: Any, **lengths: int) -> float:
    """Counted with one and with two of its layers, which are alike."""
    lists = [(m, key, layers) for m in module.modules() for key, layers in m.named_children()]
    repeated = [one for one in lists if isinstance(one[2], torch.nn.ModuleList) and len(one[2]) > 3]
    (layers,) = {len(each) for _, _, each in repeated}

    def of_first(kept: int) -> float:
        for parent, key, each in repeated:
            setattr(parent, key, each[:kept])
        return flops(module, **lengths)

    one, two = of_first(1), of_first(2)
    for parent, key, each in repeated:
        setattr(parent, key, each)
    return one + (layers - 1) * (two - one)


@pytest.mark.parametrize("name", REFERENCES)
def test_forward_flops_are_those_of_the_reference(
    name: str, reference: Callable[[str], Any]
) -> None:
    _, lengths, changes = REFERENCES[name]
    ours = graph(name, seq_len=lengths["input_ids"], **changes).forward_flops
    assert ours == pytest.approx(flops_of_all_layers(reference(name), **lengths), rel=0.01)


def test_flops_of_all_layers_are_those_of_the_whole_module(
    reference: Callable[[str], Any],
) -> None:
    for name in ("gpt2-124m", "bart-base", "tinyllama-1.1b"):
        module, lengths = reference(name), REFERENCES[name][1]
        assert flops_of_all_layers(module, **lengths) == flops(module, **lengths)


def test_squad_head() -> None:
    built = graph("bert-base", seq_len=384, head="squad")
    module = meta("BertForQuestionAnswering", hf.BertConfig())
    assert built.parameters == weights(module)
    assert built.forward_flops == pytest.approx(flops(module, input_ids=384), rel=0.01)


def test_electra_trains_generator_and_discriminator() -> None:
    sizes = {"embedding_size": 768, "num_hidden_layers": 12}
    discriminator = meta(
        "ElectraForPreTraining",
        hf.ElectraConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072, **sizes),
    )
    generator = meta(
        "ElectraForMaskedLM",
        hf.ElectraConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768, **sizes),
    )
    shared = (30522 + 512 + 2) * 768
    built = graph("electra-base", predictions=128)
    assert built.parameters == weights(discriminator) + weights(generator) - shared
    expected = flops(discriminator, input_ids=128) + flops(generator, input_ids=128)
    assert built.forward_flops == pytest.approx(expected, rel=0.01)


def test_deberta_attends_to_positions() -> None:
    config = hf.DebertaV2Config(
        vocab_size=1000,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        conv_kernel_size=3,
        conv_act="gelu",
        num_labels=3,
    )
    module = hf.DebertaV2ForSequenceClassification(config).train()
    with counter.FlopCounterMode(display=False) as count:
        module(input_ids=torch.zeros(1, 128, dtype=torch.long))
    built = graph("deberta-v2-xxlarge", layers=3, hidden=96, heads=4, ffn=384, vocab=1000)
    assert built.parameters == weights(module)
    assert built.forward_flops == pytest.approx(count.get_total_flops(), rel=0.01)


def test_mixtral_weights_and_active_flops() -> None:
    built = graph("mixtral-8x7b")
    assert built.parameters == weights(meta("MixtralForCausalLM", hf.MixtralConfig()))
    active = graph("mixtral-8x7b", experts=0, ffn=2 * 14336)
    router = 2.0 * 4096 * 4096 * 8 * 32
    assert built.forward_flops == pytest.approx(active.forward_flops + router, rel=1e-3)


def test_switch_weights() -> None:
    config = hf.SwitchTransformersConfig(
        d_model=1024,
        d_kv=64,
        d_ff=4096,
        num_layers=24,
        num_decoder_layers=24,
        num_heads=16,
        num_experts=4,
        num_sparse_encoder_layers=12,
        num_sparse_decoder_layers=12,
    )
    module = meta("SwitchTransformersForConditionalGeneration", config)
    assert graph("switch-xl-4e").parameters == weights(module)


def test_latent_attention() -> None:
    config = hf.DeepseekV2Config(
        num_hidden_layers=2,
        first_k_dense_replace=2,
        hidden_size=512,
        num_attention_heads=8,
        num_key_value_heads=8,
        intermediate_size=1024,
        vocab_size=1000,
        q_lora_rank=192,
        kv_lora_rank=64,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        head_dim=8,
    )
    module = meta("DeepseekV2ForCausalLM", config)
    built = graph(
        "llama2-7b",
        seq_len=512,
        layers=2,
        hidden=512,
        heads=8,
        ffn=1024,
        vocab=1000,
        mla=True,
        q_lora_rank=192,
        kv_lora_rank=64,
        qk_head_dim=16,
        qk_rope_dim=8,
        v_head_dim=16,
    )
    assert built.parameters == weights(module)
    assert built.forward_flops == pytest.approx(flops(module, input_ids=512), rel=0.01)


def test_mamba_weights() -> None:
    config = hf.Mamba2Config(
        hidden_size=1024,
        num_heads=32,
        head_dim=64,
        n_groups=8,
        state_size=128,
        num_hidden_layers=2,
        vocab_size=50304,
        tie_word_embeddings=True,
    )
    built = graph("mamba-hybrid-style", hybrid_pattern="M|M", hidden=1024, heads=16)
    assert built.parameters == weights(meta("Mamba2ForCausalLM", config))


def test_translation_transformer_is_torchs() -> None:
    with torch.device("meta"):
        module = torch.nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
        source, target = torch.zeros(1, 27, 512), torch.zeros(1, 27, 512)
    with counter.FlopCounterMode(display=False) as count:
        module(source, target)
    built = graph("transformer-base")
    assert built.parameters == weights(module) + 33708 * 512
    head = 2.0 * 27 * 512 * 33708
    assert built.forward_flops == pytest.approx(count.get_total_flops() + head, rel=0.01)


def test_transformer_xl_weights_are_the_published() -> None:
    assert graph("transformer-xl-base").parameters == pytest.approx(192e6, rel=0.005)
    assert graph("transformer-xl-large").parameters == pytest.approx(285e6, rel=0.005)


def test_transformer_xl_attends_the_memory() -> None:
    with torch.device("meta"):
        x, r = torch.zeros(1, 384, 512), torch.zeros(384, 512)
        qkv, position, out = (torch.nn.Linear(512, n, bias=False) for n in (1536, 512, 512))
        wide, narrow = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)
    with counter.FlopCounterMode(display=False) as count:
        q, k, v = (t.view(1, 384, 8, 64) for t in qkv(x).chunk(3, -1))
        q = q[:, -192:]
        scores = torch.einsum("bihd,bjhd->bhij", q, k)
        scores = scores + torch.einsum("bihd,jhd->bhij", q, position(r).view(384, 8, 64))
        seen = torch.einsum("bhij,bjhd->bihd", scores, v)
        narrow(wide(out(seen.reshape(1, 192, 512))))
    two = graph("transformer-xl-base", layers=2).forward_flops
    one = graph("transformer-xl-base", layers=1).forward_flops
    assert two - one == pytest.approx(count.get_total_flops(), rel=0.01)
