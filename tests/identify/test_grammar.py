"""What users may write in comments, annotations and environments."""

from __future__ import annotations

from typing import Any

import pytest

from predictor.errors import JobError
from predictor.identify.draft import settle
from predictor.identify.grammar import parse_mapping, parse_text, stated_text
from predictor.identify.identify import identify
from predictor.identify.keys import FIELD_OF
from predictor.identify.stated import Stated
from predictor.job.precision import Precision

AMP = Precision.MIXED_FP16_FP32


def values(text: str) -> dict[str, Any]:
    stated = parse_text(text, "comment")
    assert not stated.problems, stated.problems
    return dict(stated.values)


def problems(text: str) -> list[str]:
    return [problem.text for problem in parse_text(text, "comment").problems]


def test_the_comment_of_the_readme_is_read() -> None:
    assert values("model=resnet50 precision=amp epochs=90 batch=256") == {
        "model": "resnet50",
        "precision": AMP,
        "epochs": 90.0,
        "batch_size": 256,
    }


@pytest.mark.parametrize(
    "text",
    [
        "model=resnet50,batch=256",
        "model=resnet50; batch=256",
        "MODEL = ResNet-50  Batch = 256",
        "run 7 (model=resnet50, batch=256) of Ann's sweep",
        "model='resnet50' batch=\"256\"",
        "batch=1 model=resnet50 bs=256",
        "model=resnet50\nbatch_size=256\n",
        "arch=resnet_50 BS=2_5_6",
    ],
)
def test_blanks_commas_semicolons_quotes_and_case_are_free(text: str) -> None:
    assert values(text) == {"model": "resnet50", "batch_size": 256}


def test_phases_read_back_as_they_are_written() -> None:
    text = 'phases="steps=7038,seq=128,gbs=65536,ga=8,dtype=amp;epochs=0.5,image=224x224;epochs=2"'
    stated = parse_text(text, "comment")
    assert not stated.problems
    assert parse_text(stated_text(stated), "comment").values == stated.values
    assert (stated.values["precision"], stated.values["global_batch_size"]) == (AMP, 65536)
    (small,) = values('phases="steps=1,image=160"')["phases"]
    assert small.image_size == (160, 160)


NO_PHASES = ("share=2", "steps=1,steps", "", ";;", "steps=1,model=x", "x" * 999, "steps=1;" * 17)


@pytest.mark.parametrize("text", NO_PHASES)
def test_phases_that_cannot_be_keep_the_job_from_an_estimate(text: str) -> None:
    stated = parse_text(f'model=resnet50 batch=1 steps=3 phases="{text}"', "comment")
    assert [doubt.field for doubt in stated.doubts] == ["phases"]


def test_the_length_of_phases_and_that_of_a_weaker_place_are_not_mixed() -> None:
    phased = parse_text('model=resnet50 batch=1 phases="steps=3;steps=4"', "comment")
    plain = parse_text("steps=9 epochs=2", "script")
    assert not {"steps", "epochs"} & set(phased.over(plain).values)
    assert set(parse_text("steps=9", "comment").over(phased).values) == {
        "model",
        "batch_size",
        "steps",
    }
    shared = parse_text('phases="share=0.5;share=0.5"', "comment")
    assert shared.over(parse_text("steps=9", "script")).values["steps"] == 9


def test_every_alias_means_its_field_in_any_spelling() -> None:
    text = {
        "model": "vgg16",
        "precision": "bf16-mixed",
        "image_size": "224",
        "sharding": "1",
        "framework": "pytorch",
        "optimizer": "adamw",
        "gpu": "a100",
        "fabric": "ib-hdr",
        "options": "xla=on",
        "variant": "layers=2",
        "framework_date": "2024",
        "phases": '"steps=1"',
        "dataset": "mnli",
    }
    assert parse_text("trainer=timm", "comment").trainer == "timm"
    for key, field in FIELD_OF.items():
        if field == "trainer":
            continue
        for spelling in (key, key.replace("_", "-"), key.upper()):
            assert field in values(f"{spelling}={text.get(field, '1')}"), spelling


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1e5", 100_000),
        ("50k", 50_000),
        ("1.2M", 1_200_000),
        ("90.0", 90),
        ("1_000", 1000),
        ("0005", 5),
    ],
)
def test_numbers_may_be_written_short(text: str, steps: int) -> None:
    assert values(f"steps={text}") == {"steps": steps}


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "1e-3",
        "99999999999999999999",
        "abc",
        "",
        "0x10",
        "٣",
        "1__",
        "$(reboot)",
        "1;2" * 99,
    ],
)
def test_an_impossible_count_is_told_and_the_other_fields_survive(text: str) -> None:
    stated = parse_text(f'model=resnet50 steps="{text}" batch=8', "comment")
    if text != "1__":
        assert dict(stated.values) == {"model": "resnet50", "batch_size": 8}
        assert [problem.field for problem in stated.problems] == ["steps"]
        assert stated.problems[0].text.startswith("invalid steps=")


@pytest.mark.parametrize("value", ["10,000", "32,5", "1.000", "12.500"])
def test_a_number_that_people_read_in_two_ways_is_told_and_counts_as_neither(value: str) -> None:
    """Else 10,000 steps would be ten, and a kill limit would rest on them."""
    stated = parse_text(f"model=resnet50, steps={value}, batch=8,epochs=1,5", "comment")
    assert dict(stated.values) == {"model": "resnet50", "batch_size": 8}
    assert {problem.field for problem in stated.doubts} == {"steps", "epochs"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("model=resnet50 image=160", (160, 160)),
        ("model=resnet50 image=160x192", (160, 192)),
        ("model=resnet50 img_size=3x160x160", (160, 160)),
        ("model=resnet50 image=3,160,160", (160, 160)),
        ("image=96 model=unet3d", (96, 96, 96)),
        ("image_size=64x96x96 net=unet3d", (64, 96, 96)),
        ("image=160", (160,)),
    ],
)
def test_one_number_stands_for_all_axes_of_the_model(text: str, size: tuple[int, ...]) -> None:
    assert values(text)["image_size"] == size


def test_an_image_size_that_the_model_does_not_take_is_told() -> None:
    assert "leave it out" in problems("model=bert-base image=224")[0]
    assert "expected H or HxW, as resnet50" in problems("model=resnet50 image=64x64x64")[0]
    assert "expected" in problems("model=resnet50 image=0x5")[0]


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("precision=amp", AMP),
        ("precision=O1", AMP),
        ("precision=16-mixed", AMP),
        ("dtype=bf16", Precision.BF16),
        ("precision=fp16", Precision.FP16),
        ("amp=on", AMP),
        ("fp16=true", AMP),
        ("bf16=True", Precision.MIXED_BF16_FP32),
        ("amp=O2", AMP),
        ("amp=bf16", Precision.MIXED_BF16_FP32),
        ("fp8=on", Precision.MIXED_FP8_BF16),
        ("fp8=on fp16=on", Precision.MIXED_FP8_FP16),
        ("tf32=1", Precision.TF32),
        ("mixed_precision=no", Precision.FP32),
        ("tf32=on bf16=on", Precision.MIXED_BF16_FP32),
        ("precision=fp32 amp=on", Precision.FP32),
    ],
)
def test_precision_is_a_word_or_the_flags_of_training_scripts(
    text: str, precision: Precision
) -> None:
    assert values(text) == {"precision": precision}


@pytest.mark.parametrize("text", ["fp16=false", "amp=off", "bf16=0", "tf32=no"])
def test_a_flag_switched_off_says_nothing(text: str) -> None:
    assert values(text) == {}


def test_two_formats_at_once_are_a_problem() -> None:
    assert "one of them" in problems("fp16=on bf16=on")[0]


@pytest.mark.parametrize(
    ("text", "sharding"),
    [
        ("zero=2", "zero2"),
        ("zero=1", "zero1"),
        ("zero=0", "ddp"),
        ("fsdp=on", "fsdp"),
        ("sharding=zero3", "zero3"),
        ("fsdp='full_shard auto_wrap'", "fsdp"),
        ("sharding=ddp", "ddp"),
    ],
)
def test_sharding_has_the_words_of_deepspeed_and_fsdp(text: str, sharding: str) -> None:
    assert values(text) == {"sharding": sharding}


def test_options_and_variant_are_quoted_pairs() -> None:
    assert values('options="xla=on;channels_last=True, dali" variant="layers=24;hidden=1024"') == {
        "options": (("channels_last", "on"), ("dali", "on"), ("xla", "on")),
        "variant": (("hidden", "1024"), ("layers", "24")),
    }
    assert 'key=value such as "xla=on' in problems('options="a=$(id)"')[0]


def test_framework_gpu_fabric_and_optimizer_are_normalised() -> None:
    said = values('fw="PyTorch 2.3" gpu=V100 fabric="4x IB HDR" opt=apex_fused_adam')
    assert said["framework"] == "pytorch"
    assert 2024 < said.pop("framework_date") < 2025
    assert said["gpu"] == "v100"  # which of them is not said
    assert said["fabric"] == "4x-ib-hdr"
    assert said["optimizer"] == "fusedadam"


@pytest.mark.parametrize(
    "text",
    [
        "gpu=a10000",
        "fabric=pigeon",
        "fabric='99x ib-hdr'",
        "optimizer=magic",
        "framework=excel",
        "sharding=zero9",
        "precision=fp7",
        "epochs=-1",
        "epochs=1e9",
        "zero=7",
    ],
)
def test_a_word_that_is_not_known_is_told_with_what_is_accepted(text: str) -> None:
    (problem,) = problems(f"batch=4 {text}")
    key, _, value = text.replace("'", "").partition("=")
    assert f"invalid {key}={value!r}" in problem
    assert "expected" in problem or "one of" in problem or "near" in problem


def test_an_unknown_model_is_kept_by_name_and_told_with_the_nearest() -> None:
    stated = parse_text("model=resnet5O batch=4", "comment")
    assert stated.model is None
    assert stated.unknown_model == "resnet5O"
    assert "resnet50" in stated.problems[0].text


def test_unknown_keys_are_told_only_beside_one_of_ours() -> None:
    assert problems("foo=bar ticket=77") == []
    assert problems("just words, nothing else") == []
    (problem,) = problems("model=resnet50 epoch=5")
    assert "'epoch'" in problem
    assert "epochs" in problem


def test_steps_and_epochs_at_once_are_a_problem_and_neither_counts() -> None:
    stated = parse_text("steps=5 epochs=3 batch=4", "comment")
    assert set(stated.values) == {"batch_size"}
    assert "give one of them" in stated.problems[0].text


def test_an_empty_value_does_not_swallow_the_next_pair() -> None:
    stated = parse_text("epochs= batch=5", "comment")
    assert dict(stated.values) == {"batch_size": 5}
    assert stated.problems[0].text.startswith("invalid epochs=''")


@pytest.mark.parametrize("key", ["compile", "compil", "option.compile", "options.compil"])
def test_an_option_among_the_keys_is_told_as_it_is_written(key: str) -> None:
    (problem,) = parse_text(f"model=resnet50 {key}=on", "comment").problems
    assert problem.text == f'{key!r} is not a key of ours; nearest: options="compile=..."'


def test_environment_variables_have_the_same_keys() -> None:
    stated = parse_mapping(
        {
            "PRECISION_TIME": "model=vgg16 batch=8 epochs=2",
            "PRECISION_TIME_BATCH_SIZE": "16",
            "PRECISION_TIME_HOME": "/home/a",
            "PATH": "/bin",
            "PRECISION_TIME_EPOHCS": "3",
        },
        "environment",
    )
    assert dict(stated.values) == {"model": "vgg16", "batch_size": 16, "epochs": 2.0}
    assert set(stated.origins.values()) == {"environment"}
    (problem,) = stated.problems
    assert "epohcs" in problem.text


def test_annotations_have_the_same_keys() -> None:
    stated = parse_mapping(
        {
            "precision-time.io/model": "vgg16",
            "precision-time.io/batch-size": "16",
            "precision-time.io/job": "epochs=2",
            "kubernetes.io/name": "x",
        },
        "annotation",
    )
    assert dict(stated.values) == {"model": "vgg16", "batch_size": 16, "epochs": 2.0}
    assert not stated.problems


@pytest.mark.parametrize(
    "text",
    [
        "model=resnet50 precision=amp batch=256 epochs=0.1 image=3x160x192 fw='pytorch 2.3'",
        "model=gpt-style variant='layers=24;hidden=1024' gbs=512 bs=2 tp=2 pp=4 cp=2 zero=1"
        " steps=10k",
        "gpu=h100 gpus=16 gpus_per_node=8 fabric='8x ib-ndr' opt=lamb samples=1e6 image=224"
        " ga=3 seq=9",
    ],
)
def test_the_text_of_what_was_stated_reads_back_as_it(text: str) -> None:
    stated = parse_text(text, "comment")
    assert not stated.problems
    assert dict(parse_text(stated_text(stated), "mark").values) == dict(stated.values)


def test_the_stronger_place_settles_alternatives_and_joins_options() -> None:
    strong = parse_text("global_batch=512 epochs=3 options=xla=on", "comment")
    weak = parse_text("batch=4 steps=9 model=vgg16 options='xla=off;dali=on'", "script")
    both = strong.over(weak)
    assert dict(both.values) == {
        "global_batch_size": 512,
        "epochs": 3.0,
        "model": "vgg16",
        "options": (("dali", "on"), ("xla", "on")),
    }
    assert both.origins["model"] == "script"


def test_sizes_of_another_model_are_not_carried_over() -> None:
    weak = parse_text("model=gpt-style variant='layers=96'", "script")
    assert "variant" not in parse_text("model=llama2-7b", "comment").over(weak).values
    assert parse_text("model=gpt-style", "comment").over(weak).values["variant"]


def test_an_unknown_model_is_not_replaced_by_what_a_weaker_place_says() -> None:
    both = parse_text("model=mynet", "comment").over(parse_text("model=vgg16", "script"))
    assert both.model is None
    assert both.unknown_model == "mynet"


def test_what_a_stronger_place_settles_is_no_problem_any_more() -> None:
    weak = parse_text("seq=many model=bert-base", "script")
    assert weak.doubts
    both = parse_text("seq=512", "comment").over(weak)
    assert not both.problems


def test_both_batch_sizes_give_the_accumulation_on_the_gpus_there_are() -> None:
    stated = parse_text("model=gpt2 precision=amp mbs=4 gbs=512 tp=2".replace("mbs", "bs"), "c")
    job = stated.job(gpu="a100", gpus=16)
    assert (job.batch_size, job.grad_accum, job.step_samples) == (4, 16, 512)
    with pytest.raises(JobError, match="multiple"):
        stated.job(gpu="a100", gpus=24)


def test_a_job_is_refused_where_what_its_time_follows_from_was_not_understood() -> None:
    stated = parse_text("model=bert-base precision=amp batch=8 seq=4O96", "comment")
    with pytest.raises(JobError, match="seq_len"):
        stated.job(gpu="a100")
    harmless = parse_text("model=bert-base precision=amp batch=8 optimizer=magic", "comment")
    assert harmless.job(gpu="a100").batch_size == 8


def test_given_fields_give_way_to_what_was_stated_in_another_way() -> None:
    stated = parse_text("model=vgg16 precision=fp32 gbs=64 epochs=1", "comment")
    job = stated.job(gpu="a100", gpus=2, batch_size=8, steps=5)
    assert (job.batch_size, job.global_batch_size, job.steps) == (None, 64, None)


def test_settling_leaves_alone_what_has_no_image() -> None:
    stated = Stated({"model": "vgg16"}, {"model": "comment"})
    assert settle(stated) is stated


@pytest.mark.parametrize(
    ("key", "meant"), [("EPOHCS", "epochs"), ("DATSET", "dataset"), ("IMAGE_SZE", "image")]
)
def test_a_misspelt_variable_is_told_even_alone(key: str, meant: str) -> None:
    (problem,) = parse_mapping({f"PRECISION_TIME_{key}": "3"}, "environment").problems
    assert meant in problem.text


def test_a_misspelt_option_is_told_wherever_it_stands() -> None:
    places: list[dict[str, Any]] = [
        {"comment": "model=resnet50 compil=on"},
        {"environment": {"PRECISION_TIME_COMPIL": "on"}},
        {"environment": {"PRECISION_TIME": "compil=on"}},
        {"annotations": {"precision-time.io/compil": "on"}},
        {"annotations": {"precision-time.io/job": "compil=on"}},
        {"script": "#!/bin/sh\n#PT compil=on\npython train.py\n"},
    ]
    for place in places:
        (problem,) = identify(**place).problems
        assert 'nearest: options="compile=..."' in problem.text
        assert not problem.contradiction
        assert not problem.field


def test_tokens_of_a_network_that_takes_none_are_told_and_left_out() -> None:
    stated = parse_text("model=resnet50 seq=128 batch=64 precision=amp", "comment")
    assert {"seq_len", "mean_seq_len"}.isdisjoint(stated.values)
    assert stated.values["batch_size"] == 64
    assert [p.text for p in stated.problems] == [
        "invalid seq_len=128; resnet50 takes no tokens; leave it out"
    ]
    assert parse_text("model=bert-base seq=128", "comment").values["seq_len"] == 128
