"""The software of a job is resolved once, and every word of it is understood or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.cli.main import main
from predictor.errors import JobError
from predictor.estimate import api
from predictor.estimate.fitting import Fitted
from predictor.graphs.catalog import entry_of, overrides
from predictor.identify.grammar import parse_mapping, parse_text
from predictor.identify.keys import ALIASES
from predictor.job.frameworks import frameworks
from predictor.job.software import known_options, optimizer_rules, option_of
from predictor.job.training_job import SHARDINGS, TrainingJob
from predictor.planning.cost import Terms
from predictor.planning.sweeps.search import Space, search_of
from profiles.storage import shipped_yaml

PRICED = tuple(shipped_yaml("software.yaml")["options"])
OPTIMIZERS = tuple(name for name in optimizer_rules() if "_" not in name)
DATA_SETS = ("imagenet-1k", "cifar100", "openwebtext", "librispeech", "squad-v2", "wikitext-103")
LAYERED = ("layers", "hidden", "heads", "vocab", "kv_heads", "head_dim", "experts")


def job(model: str = "gpt2", **fields: Any) -> TrainingJob:
    stated: dict[str, Any] = {"precision": "bf16-mixed", "gpu": "a100", "batch_size": 8}
    return TrainingJob(model=model, **(stated | fields))


def swapped(word: str) -> str:
    """A word with two letters in its middle the other way round."""
    middle = next(i for i in range(len(word) // 2, len(word)) if word[i] != word[i - 1])
    return word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]


def dropped(word: str) -> str:
    return word[: len(word) // 2] + word[len(word) // 2 + 1 :]


MISSPELT = [
    *(("options", word, {"options": {swapped(word): "on"}}) for word in PRICED),
    *(("options", word, {"options": {dropped(word): "on"}}) for word in PRICED if len(word) > 4),
    *(
        ("optimizer", word, {"optimizer": word[:2] + "x" + word[2:]})
        for word in optimizer_rules()
        if "_" not in word
    ),
    *(("framework", word, {"framework": swapped(word)}) for word in frameworks() if len(word) > 4),
    *(("sharding", word, {"sharding": swapped(word)}) for word in SHARDINGS),
    *(("dataset", word, {"dataset": swapped(word)}) for word in DATA_SETS),
    ("options", "full", {"options": "act_ckpt=ful"}),
    ("options", "flash", {"options": "flash_attention=flahs"}),
    ("precision", "bf16", {"precision": "bf61"}),
]


def test_a_hundred_words_are_tried() -> None:
    assert len(MISSPELT) >= 100


def test_a_misspelt_word_is_refused_with_what_was_meant() -> None:
    for field, meant, wrong in MISSPELT:
        with pytest.raises(JobError, match=meant) as refused:
            job(**wrong)
        assert refused.value.field == field


def test_the_same_word_in_an_annotation_a_variable_or_a_comment_is_told() -> None:
    for field, meant, wrong in MISSPELT:
        said = wrong[field]
        text = ";".join(map("=".join, said.items())) if isinstance(said, dict) else said
        for stated in (
            parse_mapping({f"precision-time.io/{field}": text}, "annotation"),
            parse_mapping({f"PRECISION_TIME_{field.upper()}": text}, "environment"),
            parse_text(f'{field}="{text}"', "comment"),
        ):
            assert field not in stated.values, (field, text)
            assert meant in stated.problems[0].text


@pytest.mark.parametrize("key", [word for word in ALIASES if len(word) > 7])
def test_a_misspelt_annotation_is_told_the_key_that_was_meant(key: str) -> None:
    slip = swapped(key).replace("_", "-")
    (problem,) = parse_mapping(
        {f"precision-time.io/{slip}": "1", "precision-time.io/gpus": "8"}, "annotation"
    ).problems
    assert key in problem.text


@pytest.mark.parametrize("key", LAYERED)
def test_a_misspelt_size_of_the_network_is_refused(key: str) -> None:
    entry = entry_of("gpt-moe-style")
    with pytest.raises(JobError, match=key):
        overrides(entry, ((swapped(key), "8"),))
    with pytest.raises(JobError, match=r"a whole number|on or off"):
        overrides(entry, ((key, "many"),))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("layers=0", "a whole number of at least 1"),
        ("layers=-3", "a whole number of at least 1"),
        ("layers=1.5", "a whole number of at least 1"),
        ("layers=on", "a whole number of at least 1"),
        ("hidden=nan", "a whole number of at least 1"),
        ("experts=-1", "a whole number of at least 0"),
        ("swiglu=maybe", "on or off"),
        ("norm=foo", "layernorm, layer_norm, rmsnorm"),
        ("pos_emb=ropee", "rope"),
        ("activation=gelo", "gelu"),
        ("no_layers=on", "num_layers"),
        ("heads=7", "hidden=768 to be a multiple of heads=7"),
        ("hidden=770", "hidden=770 to be a multiple of heads=12"),
        ("kv_heads=5", "heads=12 to be a multiple of kv_heads=5"),
    ],
)
def test_a_network_of_sizes_that_none_has_is_refused(stated: str, expected: str) -> None:
    key, value = stated.split("=")
    with pytest.raises(JobError, match=f"invalid variant='{stated}'; .*{expected}"):
        overrides(entry_of("gpt2"), ((key, value),))


def test_a_token_goes_to_no_more_experts_than_there_are() -> None:
    mixture = entry_of("gpt-moe-style")
    for variant in ((("topk", "9"),), (("experts", "1"),)):
        with pytest.raises(JobError, match="a token goes to at most experts="):
            overrides(mixture, variant)
    assert overrides(mixture, (("topk", "8"),))


def test_heads_of_a_width_of_their_own_may_be_any_number() -> None:
    for model, sizes in {
        "gpt2": (("head_dim", "50"), ("heads", "7")),
        "t5-base": (("heads", "7"),),
    }.items():
        assert overrides(entry_of(model), sizes) == sizes


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("flash_attntion=on", "nearest are flash_attention"),
        ("act_ckpt=ful", "expected one of full, on"),
        ("chanels_last", "nearest are channels_last"),
    ],
)
def test_a_comment_is_told_the_nearest_word_and_is_not_priced(word: str, told: str) -> None:
    stated = parse_text(f'model=gpt2 precision=amp batch=8 options="{word}"', "comment")
    assert told in stated.problems[0].text
    with pytest.raises(JobError, match=told):
        stated.job(gpu="a100")


def test_every_option_has_a_meaning_and_a_source() -> None:
    for key in PRICED:
        assert known_options()[key].meaning
        assert known_options()[key].source


@pytest.mark.parametrize("key", PRICED)
def test_every_spelling_of_an_option_is_that_option(key: str) -> None:
    for spelling in shipped_yaml("software.yaml")["options"][key].get("spellings", ()):
        assert option_of(spelling.upper().replace("_", "-")).key == key


@pytest.mark.parametrize(
    ("text", "name", "fused"),
    [
        ("sdpa", "flash_attention", True),
        ("attn_implementation=flash_attention_2", "flash_attention", True),
        ("attn_impl=torch", "flash_attention", False),
        ("attention_backend=unfused", "attention_backend", False),
    ],
)
def test_the_attention_kernel_is_what_the_job_says(text: str, name: str, fused: bool) -> None:
    found = job(options=text)
    assert found.options[0][0] == name
    assert found.software.fused_attention is fused
    assert found.software.setting("fused_attention").stated  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("framework", "fused"),
    [
        ("pytorch", True),
        ("pytorch 2.6", True),
        ("pytorch 1.13", False),
        ("NGC pytorch 22.05", False),
        ("transformers", True),
        ("tensorflow 2.4", False),
        ("llm-foundry", True),
        ("megatron", True),
        ("megatron-lm 22.05", False),
    ],
)
def test_what_is_unstated_is_of_its_era(framework: str, fused: bool) -> None:
    software = job(framework=framework).software
    assert software.fused_attention is fused
    if fused:
        setting = software.setting("fused_attention")
        assert setting is not None
        assert not setting.stated
        assert setting.reason


def test_pytorch_is_contiguous_unless_a_recipe_of_nvidia_or_an_option_says_otherwise() -> None:
    recipe = {"framework": "pytorch 1.9", "source": "deeplearningexamples"}
    assert job(**recipe).software.channels_last
    assert not job(framework="pytorch 1.9").software.channels_last
    assert not job(**(recipe | {"framework": "pytorch 1.4"})).software.channels_last
    assert job(options="memory_format=nhwc").software.channels_last


def test_a_container_dates_the_software() -> None:
    dated = job(options="container=22.05")
    assert dated == job(framework="pytorch 22.05")
    assert not dated.software.fused_attention


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(JobError, match="contradict"):
        job(options="flash_attention=on;attention_backend=unfused")
    with pytest.raises(JobError, match="one value of channels_last"):
        job(options="layout=nhwc;channels_last=off")
    with pytest.raises(JobError, match="expected one of on, off"):
        job(options="lora=16")


@pytest.mark.parametrize(
    ("model", "since"),
    [
        ("bert-base", 2024.4),
        ("xlm-roberta-base", 2024.8),
        ("google/flan-t5-xl", 2026.6),
        ("gpt2", 2023.2),
    ],
)
def test_attention_is_one_kernel_from_when_the_library_of_a_model_has_it(
    model: str, since: float
) -> None:
    for date, fused in ((since - 0.1, False), (since, True)):
        assert job(model, framework_date=date).software.fused_attention is fused


@pytest.mark.parametrize(
    ("options", "sharding"),
    [
        ("zero=3", "zero3"),
        ("zero=0", "ddp"),
        ("fsdp=full_shard;zero=3", "fsdp"),
        ("fsdp", "fsdp"),
        ("fsdp=no_shard", "ddp"),
        ("fsdp=shard_grad_op", "zero2"),
        ("fsdp=hybrid_shard", "hsdp"),
        ("use_distributed_optimizer", "zero1"),
    ],
)
def test_options_that_shard_are_the_sharding_of_the_job(options: str, sharding: str) -> None:
    assert job(options=options).sharding == sharding


def test_a_stated_sharding_stays() -> None:
    assert job(options="use_distributed_optimizer", sharding="fsdp").sharding == "fsdp"


def test_options_that_are_fields_are_refused_and_others_without_a_price_are_told(
    fitted: Fitted,
) -> None:
    with pytest.raises(JobError, match="'optimizer'; it is a field of its own"):
        job(options="optimizer=adamw_8bit")
    with pytest.raises(JobError, match="expected one of 0, 1, 2, 3"):
        job(options="zero=7")
    told = fitted.predictor.predict(job(options="sync_bn=on;zero=1")).warnings
    assert [one for one in told if "no price knows sync_bn:" in one]


def test_a_source_without_runs_is_refused_but_a_site_is_new(fitted: Fitted) -> None:
    known = fitted.predictor.residual.vocabulary.sources
    with pytest.raises(JobError, match="gavel"):
        fitted.predictor.check_source("gavle")
    for source in ("", "site:new", known[0]):
        fitted.predictor.check_source(source)


# One job as people may write it: model, GPU, size and precision, software, split and length.
NETWORKS = {
    "gpt2": {"seq_len": st.sampled_from([512, 1024])},
    "bert-large-uncased": {"seq_len": st.sampled_from([128, 512])},
    "resnet-50": {"image_size": st.sampled_from([160, 224])},
    "google/vit-base-patch16-224": {},
    "Llama-2-7b-hf": {
        "seq_len": st.sampled_from([2048, 4096]),
        "sharding": st.sampled_from(["fsdp", "zero3"]),
    },
    "gpt3-1.3b": {
        "seq_len": st.just(1024),
        "tensor_parallel": st.sampled_from([1, 2]),
        "pipeline_parallel": st.sampled_from([1, 4]),
    },
}
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "gpu": st.sampled_from(["v100-sxm2-32gb", "A100", "NVIDIA-H100-80GB-HBM3"]),
    "precision": st.sampled_from(["fp32", "amp", "fp16-mixed"]),
    "gpus": st.sampled_from([8, 16, 64]),
    "batch_size": st.sampled_from([1, 4, 8]),
    "steps": st.sampled_from([1, 100, 50_000]),
}
SPELLED: dict[str, st.SearchStrategy[Any]] = {
    "framework": st.sampled_from(["pytorch 2.6", "PyTorch 1.13", "torch", "megatron-lm"]),
    "options": st.sampled_from(
        [{"attn_implementation": "sdpa"}, {"grad_ckpt": "true"}, {"container": "22.05"}]
    ),
    "optimizer": st.sampled_from(["AdamW", "adamw_torch", "apex.optimizers.FusedAdam"]),
    "grad_accum": st.sampled_from([2, 8]),
    "fabric": st.sampled_from(["25GbE", "8x ib-ndr"]),
    "gpus_per_node": st.sampled_from([4, 8]),
}


@st.composite
def spelled_jobs(draw: st.DrawFn) -> dict[str, Any]:
    model = draw(st.sampled_from(sorted(NETWORKS)))
    own = {"model": st.just(model), **COMMON, **NETWORKS[model]}
    return draw(st.fixed_dictionaries(own, optional=SPELLED))


def words_of(said: dict[str, Any]) -> list[str]:
    """The job as words of a command line."""
    words = [said["model"]]
    for name, value in said.items():
        if isinstance(value, dict):
            words += [word for k, v in value.items() for word in ("--option", f"{k}={v}")]
        elif name != "model":
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@given(said=spelled_jobs())
@settings(max_examples=8)
def test_every_command_python_and_a_sweep_say_one_number_for_one_job(
    fitted: Fitted, said: dict[str, Any]
) -> None:
    api._loaded.cache_clear()
    python = api.predict_time(**said)
    runner, numbers = CliRunner(), {}
    for command in (["predict"], ["compare"], ["plan", "--within", "99999h", "--all"]):
        result = runner.invoke(main, [*command, *words_of(said), "--format=json"])
        found = json.loads(result.stdout)
        if command == ["predict"]:
            numbers["predict"] = found["total_s"]
        else:
            for line in found.get("lines", found.get("plans")):
                numbers[command[0]] = line["total_s"]
    (swept,) = search_of(fitted.predictor, Space(job=said, trials=1), Terms()).configurations
    numbers["sweep"] = swept.plan.found.total_s
    assert ("plan" in numbers) == python.memory.ok  # plans that do not fit are left out
    for number in numbers.values():
        assert number == pytest.approx(python.total_s), numbers


def test_evaluate_goes_on_and_counts_the_words_it_does_not_know(
    fitted: Fitted, tmp_path: Path
) -> None:
    file = tmp_path / "own.csv"
    row = "resnet50,a100-sxm4-80gb,1,mixed_fp16_fp32,64,1000,images/s"
    file.write_text(
        "id,model,gpu,gpus,precision,batch_per_gpu,throughput,unit,options,framework\n"
        f"a,{row},flash_attntion=on;optimizer=adamwx,pytroch\nb,{row},xla=on,pytorch\n"
    )
    result = CliRunner().invoke(main, ["evaluate", str(file), "--method", "full"])
    assert result.exit_code == 0, result.output
    for word in ("flash_attntion (1)", "adamwx (1)", "pytroch (1)"):
        assert word in result.stderr


def test_adapters_that_are_off_have_no_rank() -> None:
    said = {"model": "llama2-7b", "gpu": "a100", "precision": "bf16", "batch_size": 1}
    with pytest.raises(JobError, match=r"lora_rank=8;lora=off.*contradict"):
        TrainingJob(**said, options=(("lora", "off"), ("lora_rank", "8")))  # type: ignore[arg-type]
