"""`--hf-config`: networks of transformers from their config.json alone, of every kind of input."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")
pytest.importorskip("transformers")
from predictor.cli.main import main
from predictor.graphs.catalog import graph_of
from predictor.graphs.operator import Kind, Workload

warnings.filterwarnings("ignore", module="transformers")


@dataclass(frozen=True)
class Case:
    """A config, the words of the command beside it, and whether every length can be predicted."""

    config: dict[str, Any]
    words: tuple[str, ...] = ("--seq-len", "32")
    any_length: bool = True


def config(model_type: str, architecture: str | None, **fields: Any) -> dict[str, Any]:
    named = {"architectures": [architecture]} if architecture else {}
    return {"model_type": model_type, **named, **fields}


ENCODER = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "vocab_size": 500}
TOWERS = {
    "text_config": {**ENCODER, "vocab_size": 500, "eos_token_id": 499},
    "vision_config": {**ENCODER, "image_size": 32, "patch_size": 8},
}
SPEECH = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
BERT = config("bert", None, vocab_size=500, **ENCODER)
CASES = {
    "bert-classifier": Case(BERT, ("--seq-len", "32", "--hf-task", "sequence-classification")),
    "qwen3": Case(config("qwen3", "Qwen3ForCausalLM", head_dim=16, **DECODER)),
    "gemma2": Case(config("gemma2", "Gemma2ForCausalLM", head_dim=16, **DECODER)),
    "mixtral": Case(config("mixtral", "MixtralForCausalLM", num_local_experts=4, **DECODER)),
    "t5": Case(
        config(
            "t5",
            "T5ForConditionalGeneration",
            d_model=64,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            d_kv=16,
            vocab_size=500,
        )
    ),
    "bart": Case(config("bart", "BartForConditionalGeneration", vocab_size=500, **SPEECH)),
    "vit": Case(
        config("vit", "ViTForImageClassification", image_size=32, patch_size=8, **ENCODER), ()
    ),
    "convnext": Case(
        config(
            "convnext",
            "ConvNextForImageClassification",
            image_size=64,
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 32, 64],
        ),
        (),
    ),
    "segformer": Case(
        config(
            "segformer",
            "SegformerForSemanticSegmentation",
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 32, 64],
        ),
        ("--input", "pixel_values=3,64,64"),
    ),
    "clip": Case(config("clip", "CLIPModel", projection_dim=32, **TOWERS)),
    "whisper": Case(
        config(
            "whisper",
            "WhisperForConditionalGeneration",
            vocab_size=500,
            num_mel_bins=16,
            max_source_positions=50,
            pad_token_id=0,
            **SPEECH,
        )
    ),
    "wav2vec2": Case(
        config("wav2vec2", "Wav2Vec2ForCTC", vocab_size=40, **ENCODER), ("--seq-len", "16000")
    ),
    "mamba2": Case(
        config(
            "mamba2",
            "Mamba2ForCausalLM",
            hidden_size=64,
            num_heads=8,
            head_dim=16,
            n_groups=1,
            state_size=16,
            num_hidden_layers=2,
            vocab_size=500,
        )
    ),
}


@pytest.fixture(autouse=True)
def own_home(home: Path) -> None:
    """What is traced is not kept."""


def run(path: Path, *words: str, code: int = 0) -> Result:
    command = ("trace", "--hf-config", str(path), "--name", "own", "--format", "json", *words)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", CASES)
def test_a_config_is_enough(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case.config))
    told = json.loads(run(path, *case.words).stdout)
    assert told["parameters"] > 0
    assert told["any_batch_size"]
    assert told["any_seq_len"] == ("--seq-len" in case.words and case.any_length)


def test_what_is_not_packed_is_causal(tmp_path: Path) -> None:
    """Transformers masks as if samples were packed where it cannot look at their positions."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config("llama", "LlamaForCausalLM", **DECODER)))
    run(path, "--seq-len", "2048")
    operators = graph_of("own", (), Workload(1, seq_len=2048)).operators
    attention = next(o for o in operators if o.kind is Kind.ATTENTION)
    queries, keys, head, matrices = attention.dims
    assert attention.flops == pytest.approx(2.0 * queries * keys * head * matrices)


MISTAKES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "no object": ([1], (), "hf_config="),
    "no model type": ({}, (), "no model_type; expected"),
    "unknown model type": ({"model_type": "bertt"}, (), "model_type='bertt'"),
    "no head": (BERT, ("--seq-len", "32"), "no hf_task; expected one of causal-lm"),
    "unknown task": (BERT, ("--hf-task", "poetry"), "invalid hf_task='poetry'; expected one of"),
    "task of another kind": (BERT, ("--hf-task", "ctc"), "a task that bert has a head for"),
    "no length": (BERT, ("--hf-task", "masked-lm"), "no seq_len; expected"),
    "too long": (
        BERT,
        ("--hf-task", "masked-lm", "--seq-len", "4096"),
        "invalid seq_len=4096; expected at",
    ),
    "no image size": (CASES["segformer"].config, (), "pixel_values=3,HEIGHT,WIDTH"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_field_the_value_and_what_is_accepted(
    tmp_path: Path, name: str
) -> None:
    written, words, said = MISTAKES[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(written))
    assert said in run(path, *words, code=2).stderr
