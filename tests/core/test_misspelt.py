"""Words as people mistype them: every entrance refuses each with the word that was meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from k8s_extender.config import read_config
from predictor.cli.main import main
from predictor.errors import PrecisionTimeError
from predictor.estimate import api
from predictor.estimate.fitting import Fitted
from predictor.identify.grammar import parse_mapping, parse_text
from predictor.identify.identify import parse_script
from predictor.identify.rules import read_rules
from predictor.identify.stated import Stated
from predictor.integrations.trainer_settings import TrainerSettings, job_of
from predictor.planning.cost import read_tariff
from predictor.planning.sweeps.search import read_space
from slurm_plugin.config import read_policy

# Field: word as written > word that the answer must name. Of pairs the key or the value is wrong.
WRITTEN = """
options: flash_atention=on > flash_attention, chanels_lst=on > channels_last,
  activation_checkpoiting=on > activation_checkpointing, load_in_4bits=on > load_in_4bit,
  gradient_checkpoining=on > gradient_checkpointing, torch_complie=on > torch_compile,
  cuda_grpah=on > cuda_graph, lora_rnak=8 > lora_rank, quantised_base=4bit > quantized_base,
  ofload_optimizer=cpu > offload_optimizer, overlap_grad_redcue=on > overlap_grad_reduce,
  tp_com_overlap=on > tp_comm_overlap, sample_paking=on > sample_packing, xlaa=on > xla,
  freez_backbone=on > freeze_backbone, lora_target_modlues=all > lora_target_modules,
  attn_implementaion=sdpa > attn_implementation, recompute_granularty=full > recompute_granularity,
  unpadd=on > unpad, moe_groupped_gemm=on > moe_grouped_gemm, act_ckpt=selectve > selective,
  attn_implementation=sdpaa > sdpa, compile=inducter > inductor, channels_last=nwhc > nhwc,
  quantized_base=4bits > 4bit, lora=lroa > lora, objective=distilation > distillation,
  evaluation=each_epcoh > each_epoch, amp=O5 > O2, frozen=backbon > backbone, cuda_graph=yess > on,
  lora_rank=eight > number, zero=thre > 3, lora_targets=atention > attention
framework: pytorhc > pytorch, tensorfow 2.4 > tensorflow, megatorn > megatron, paddel > paddle,
  transfromers > transformers, jaxx > jax, ligthning > lightning, mxnt > mxnet
optimizer: adamww > adamw, fusedadan > adam, adafctor > adafactor, lambb > lamb, sdg > sgd,
  lion8 > lion, moun > muon, adamw_8bits > adamw_8bit, galor_adamw > galore, rmsporp > rmsprop
precision: bfloat61 > bf16, mixed_fp16_fp23 > mixed_fp16_fp32, fp61 > fp16, tf23 > tf32, ammp > amp,
  bf16-mixd > bf16-mixed, fp88 > fp8, mxpf8 > mxfp8
gpu: a100-smx4-80gb > a100-sxm4-80gb, h100-sxm-80bg > h100-sxm5-80gb, v1000 > v100, gb20 > gb200,
  rtx4900 > rtx4090, mi300xx > mi300x, l40ss > l40s, Tesla T44 > t4
fabric: ib-hrd > ib-hdr, infinibnad > ib-fdr, 25GBe5 > ethernet-25, 4x ib-ndrr > ib-ndr,
  rocee > roce, 8x ib-edrx > ib-edr
dataset: imagenet-lk > imagenet-1k, cifar01 > cifar10, mnlii > mnli, squad_v3 > squad,
  librispeach > librispeech, openwebtxt > openwebtext, wikitext-130 > wikitext-103, coco2071 > coco
sharding: zero-33 > zero3, fdsp > fsdp, hspd > hsdp, ddpp > ddp
variant: layer=24 > layers, hiden=1024 > hidden, head=16 > heads, vocabulary_sise=50000 > vocab,
  kvheads=4 > kv_heads, expert=8 > experts, head_dimm=64 > head_dim, layers=twelve > number
model: resent50 > resnet50, bert-larg > bert-large, gpt2-xll > gpt2-1558m, lama2-7b > llama2-7b,
  vit-bsae-16 > vit-base-16, efficentnet-b0 > efficientnet-b0, t5-lrage > t5-large,
  mask-rcnn-r50-fnp > mask-rcnn-r50-fpn, stable-difusion-v2 > stable-diffusion-v2
"""
WORDS = [
    (field, *pair.split(" > "))
    for field, text in yaml.safe_load(WRITTEN).items()
    for pair in text.split(", ")
]
MODEL = {"variant": "gpt-moe-style"}
COMMANDS = {"predict": (), "explain": (), "compare": (), "plan": ("--within", "900h")}
FLAGS = {
    "--batchsize": "--batch-size",
    "--precison": "--precision",
    "--gpuss": "--gpus",
    "--grad-acum": "--grad-accum",
    "--seq-length": "--seq-len",
    "--tensor-paralel": "--tensor-parallel",
    "--dataset-sise": "--dataset-size",
    "--fabrik": "--fabric",
}
POLICY = {
    "limits: {quantil: 0.9}": "quantile",
    "limit: {mode: set}": "limits",
    "limits: {mode: sett}": "set",
    "limits: {assumed_precision: fp23}": "fp32",
    "placement: {methd: gres}": "method",
    "order: {wieght: 2}": "weight",
    "soft_tme: {mode: advise}": "soft_time",
    "hardware: {gpu_types: {big: a1000}}": "a100-sxm4-80gb",
    "hardware: {node_gpus: {'n*': v1000}}": "v100-sxm2-16gb",
    "hardware: {fabric: ib-hrd}": "ib-hdr",
    "watch: {max_extention: 2}": "max_extension",
}
CONFIG = {
    "filtr: {}": "filter",
    "deadline: {quantille: 0.9}": "quantile",
    "prioritise: {}": "prioritize",
    "hardware: {fabric: ib-hrd}": "ib-hdr",
    "server: {prot: 1}": "port",
}

pytestmark = pytest.mark.usefixtures("fitted")


def fields(field: str, word: str) -> dict[str, Any]:
    """The fields of a job with one wrong word."""
    job = {"model": MODEL.get(field, "gpt2"), "precision": "bf16", "gpu": "h100", "batch_size": 8}
    key, is_pair, value = word.partition("=")
    return {**job, "gpus": 16, "epochs": 1, field: {key: value} if is_pair else word}


def arguments(field: str, word: str) -> list[str]:
    """The same as words of a command line."""
    job = fields(field, word)
    flag = {"options": "--option"}.get(field, f"--{field}")
    own = [] if field == "model" else [flag, word]
    others = [(f"--{k.replace('_', '-')}", str(v)) for k, v in job.items() if k != field]
    return [job["model"], *own, *(x for pair in others if pair[0] != "--model" for x in pair)]


def texts(field: str, word: str) -> dict[str, str]:
    """The same as texts by key."""
    return {k: str(v) for k, v in fields(field, word).items()} | {field: word}


def told(stated: Stated) -> str:
    assert stated.problems
    return stated.problems[0].text


def by_comment(field: str, word: str, _: Path) -> str:
    return told(parse_text(" ".join(f'{k}="{v}"' for k, v in texts(field, word).items()), "x"))


def by_line_of_the_script(field: str, word: str, _: Path) -> str:
    line = " ".join(f'{k}="{v}"' for k, v in texts(field, word).items())
    return told(parse_script(f"#!/bin/bash\n#PT {line}\npython train.py\n", ("job.sh",)))


def by_annotation(field: str, word: str, _: Path) -> str:
    return told(
        parse_mapping({f"precision-time.io/{k}": v for k, v in texts(field, word).items()}, "x")
    )


def by_variable(field: str, word: str, _: Path) -> str:
    said = {f"PRECISION_TIME_{k.upper()}": v for k, v in texts(field, word).items()}
    return told(parse_mapping(said, "environment"))


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(PrecisionTimeError) as refused:
        call()
    return str(refused.value)


def by_rule(field: str, word: str, directory: Path) -> str:
    job = {k: v for k, v in fields(field, word).items() if k != "gpus"}
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump({"rules": [{"name": "a", "match": {"user": "b"}, "job": job}]}))
    return raised(lambda: read_rules(file))


def by_python(field: str, word: str, _: Path) -> str:
    return raised(lambda: api.predict_time(**fields(field, word)))


def by_callback(field: str, word: str, _: Path) -> str:
    job = fields(field, word)
    predictor = api.load_predictor()
    return raised(lambda: predictor.predict(job_of(TrainerSettings(gpus=1), job)))


def by_sweep(field: str, word: str, directory: Path) -> str:
    file = directory / "space.yaml"
    file.write_text(yaml.safe_dump({"job": fields(field, word), "trials": 1}))
    predictor = api.load_predictor()
    return raised(lambda: predictor.predict_many(read_space(file).jobs()))


ENTRANCES = (
    by_comment,
    by_line_of_the_script,
    by_annotation,
    by_variable,
    by_rule,
    by_python,
    by_callback,
    by_sweep,
)


def spelled(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "")


def test_a_hundred_words_are_tried() -> None:
    assert len(WORDS) >= 100


def test_every_entrance_refuses_it_in_the_same_words_with_what_was_meant(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "load_predictor", lambda *_: fitted.predictor)
    for field, word, meant in WORDS:
        said = {by(field, word, tmp_path).rpartition("invalid ")[2] for by in ENTRANCES}
        assert len(said) == 1, said
        assert spelled(meant) in spelled(said.pop().partition(";")[2]), (field, word)


def test_a_command_refuses_it_on_stderr(tmp_path: Path) -> None:
    for i, (field, word, meant) in enumerate(WORDS):
        name = list(COMMANDS)[i % len(COMMANDS)]
        result = CliRunner().invoke(main, [name, *arguments(field, word), *COMMANDS[name]])
        assert result.exit_code == 2, (name, word, result.output)
        assert spelled(meant) in spelled(result.stderr), (name, word)


def test_a_misspelt_flag_is_refused_with_what_was_meant() -> None:
    for flag, meant in FLAGS.items():
        result = CliRunner().invoke(main, ["predict", "gpt2", flag, "8"])
        assert result.exit_code == 2
        assert meant in result.stderr.replace(flag, "")


@pytest.mark.parametrize(("read", "words"), [(read_policy, POLICY), (read_config, CONFIG)])
def test_a_misspelt_setting_is_refused_with_what_was_meant(
    read: Callable[[Path], object], words: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    for text, meant in words.items():
        file.write_text(text)
        assert meant in raised(lambda: read(file)).rpartition("=")[2]


@pytest.mark.parametrize("read", [read_policy, read_config])
def test_a_setting_that_stands_twice_is_refused(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("hardware: {fabric: ib-hdr}\nhardware: {fabric: ib-ndr}\n")
    told = f"{file} cannot be read: line 2: hardware stands twice; expected once"
    assert raised(lambda: read(file)) == told


@pytest.mark.parametrize(
    ("read", "text", "twice"),
    [
        (read_rules, "rules: [{name: a, match: {name: x}, job: {model: a}, job: {}}]", "job"),
        (read_tariff, "{currency: EUR, prices_per_gpu_hour: {a100: 1, a100: 2}}", "a100"),
    ],
)
def test_what_rules_and_prices_say_twice_is_refused(
    read: Callable[[Path], object], text: str, twice: str, tmp_path: Path
) -> None:
    file = tmp_path / "said.yaml"
    file.write_text(text)
    assert f"{twice} stands twice" in raised(lambda: read(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits: {mode: sett}", "limits.mode='sett': expected 'set', 'warn' or 'off'"),
        ("limits: {startup_min: -1}", "startup_min=-1: expected a number of at least 0 or 'auto'"),
        ("exclude: {users: 3}", "exclude.users=3: expected a list"),
        ("limits: {warn_explicit: maybe}", "expected true or false"),
        ("limits: {rounding_min: 1.5}", "expected a whole number"),
        ("order: {longest_delay: 7 days}", "expected a time such as 7d"),
        ("order: {longest_delay: 7}", "expected a time such as 7d"),
        ("limits: [1]", "limits=[1]: expected fields with values"),
    ],
)
def test_a_setting_of_another_type_is_refused_in_plain_words(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    found = raised(lambda: read_policy(file))
    assert said in found
    assert not {"frozenset", "constrained", "Input", "instance"} & set(found.split())
