"""`precision-time predict` and `compare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from predictor.estimate.fitting import Fitted
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob

Run = Callable[..., Result]
RunJson = Callable[..., Any]
WORDS = (
    "resnet-50",
    "--gpu",
    "a100-sxm4-80gb",
    "--gpus",
    "8",
    "--precision",
    "amp",
    "--batch-size",
    "256",
    "--epochs",
    "90",
)

pytestmark = pytest.mark.usefixtures("fitted")


def test_json_is_the_prediction(run_json: RunJson, fitted: Fitted) -> None:
    job = TrainingJob(
        model="resnet50",
        precision=Precision.MIXED_FP16_FP32,
        gpu="a100-sxm4-80gb",
        gpus=8,
        batch_size=256,
        epochs=90,
    )
    expected = fitted.predictor.predict(job).as_dict()
    found = run_json("predict", *WORDS)
    assert found.keys() == expected.keys()
    assert found["total_s"] == pytest.approx(expected["total_s"], rel=1e-6)
    assert found["intervals"]["0.95"] == pytest.approx(expected["intervals"]["0.95"], rel=1e-6)


def test_every_option_reaches_the_job(run_json: RunJson) -> None:
    found = run_json(
        "predict",
        "gpt",
        "--gpu",
        "h100-sxm5-80gb",
        "--gpus",
        "32",
        "--gpus-per-node",
        "4",
        "--precision",
        "bf16-mixed",
        "--global-batch-size",
        "64",
        "--grad-accum",
        "4",
        "--seq-len",
        "1024",
        "--steps",
        "100",
        "--framework",
        "megatron",
        "--optimizer",
        "adamw",
        "--sharding",
        "zero1",
        "--tensor-parallel",
        "2",
        "--pipeline-parallel",
        "2",
        "--fabric",
        "8x ib-ndr",
        "--variant",
        "layers=24",
        "--variant",
        "hidden=1024",
        "--variant",
        "heads=16",
        "--option",
        "act_ckpt=on",
    )
    assert (found["model"], found["nodes"], found["steps"]) == ("gpt", 8, 100)
    assert (found["global_batch_size"], found["grad_accum"], found["batch_size"]) == (64, 4, 2)
    assert found["precision"] == "mixed_bf16_fp32"
    assert found["total_s"] == pytest.approx(100 * found["step_s"])


PHASES = (
    "predict",
    "bert-large",
    "--gpu",
    "a100-sxm4-80gb",
    "--gpus",
    "8",
    "--precision",
    "amp",
    "--phase",
    "steps=700,seq_len=128,batch_size=64",
    "--phase",
    "steps=150,seq_len=512,batch_size=8,grad_accum=8,precision=fp32",
)


def test_phases_are_summed_and_shown_each(run: Run, run_json: RunJson) -> None:
    found, shown = run_json(*PHASES), run(*PHASES).stdout
    assert [(p["steps"], p["precision"], p["batch_size"]) for p in found["phases"]] == [
        (700, "mixed_fp16_fp32", 64),
        (150, "fp32", 8),
    ]
    assert found["total_s"] == pytest.approx(sum(p["total_s"] for p in found["phases"]))
    assert "bert-large, 2 phases" in shown
    assert "phase 2, 150 steps" in shown
    assert "fp32, batch 8 x 8 per GPU, 512 tokens" in shown


def test_a_share_of_the_epochs_is_a_phase(run_json: RunJson) -> None:
    words = ("--phase", "share=90%", "--phase", "share=0.1,precision=fp32")
    found, plain = run_json("predict", *WORDS, *words), run_json("predict", *WORDS)
    assert found["steps"] == pytest.approx(plain["steps"], abs=2)
    assert found["total_s"] > plain["total_s"]
    compared = run_json(
        "compare",
        "resnet50",
        "--gpu",
        "v100",
        "--precision",
        "amp",
        "--batch-size",
        "64",
        "--epochs",
        "1",
        *words,
    )
    assert len(compared["lines"][0]["phases"]) == 2


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("share=0.5", "add up to 1"),
        ("steps=5", "the phases state their length"),
        ("seq_len=5", "one of share, steps and epochs"),
        ("share=1,colour=red", "colour=red"),
        ("share=x", "a number such as"),
        ("share=1,batch_size=0", "batch_size"),
        ("share=1,precision=fp1", "fp1"),
    ],
)
def test_a_phase_that_cannot_be_is_named(run: Run, phase: str, said: str) -> None:
    assert said in run("predict", *WORDS, "--phase", phase, code=2).stderr


@pytest.mark.parametrize(
    ("words", "slower"),
    [
        (("--image-size", "320"), True),
        (("--image-size", "160x160"), False),
        (("--batch-size", "512"), True),
    ],
)
def test_options_move_the_step_time(
    run_json: RunJson, words: tuple[str, ...], slower: bool
) -> None:
    plain = run_json("predict", *WORDS)
    base = list(WORDS)
    if words[0] in base:
        del base[base.index(words[0]) : base.index(words[0]) + 2]
    moved = run_json("predict", *base, *words)
    assert (moved["step_s"] > plain["step_s"]) is slower


def test_text_says_time_interval_parts_and_evidence(run: Run) -> None:
    lines = run("predict", *WORDS).stdout.splitlines()
    assert lines[0] == "resnet50, mixed_fp16_fp32, 8 x a100-sxm4-80gb (1 node)"
    starts = {line.split("  ")[0] for line in lines}
    assert {"step", "throughput", "total", "GPU-hours", "steps", "evidence"} <= starts
    parts = "\n".join(lines)
    for part in ("tensor cores", "host", "exposed communication", "optimizer", "correction"):
        assert part in parts
    total = next(line for line in lines if line.startswith("total"))
    assert [total.count(word) for word in ("50 %", "95 %", "..")] == [1, 1, 2]
    (why,) = [line for line in lines if line.startswith("why so wide: ")]
    (narrower,) = [line for line in lines if line.startswith("narrower by: ")]
    assert lines.index(total) < lines.index(why) < lines.index(narrower)


def test_a_job_without_length_has_no_total(run: Run) -> None:
    assert "total" not in run("predict", *WORDS[:-2]).stdout


@pytest.mark.parametrize("left_out", ["precision", "gpu"])
def test_what_every_job_states_is_asked_for(run: Run, left_out: str) -> None:
    stated = {"gpu": "a100", "precision": "amp", "batch-size": "8"}
    words = [w for name, value in stated.items() if name != left_out for w in (f"--{name}", value)]
    answer = run("predict", "resnet50", *words, code=2)
    asked = {"precision": "fp32, tf32", "gpu": "GPU: name, product"}[left_out]
    assert f"Missing option '--{left_out}'. {asked}" in answer.stderr


def test_warnings_go_to_stderr(run: Run) -> None:
    result = run("predict", "resnet50", "--gpu", "v100", "--precision", "tf32", "--batch-size", "8")
    assert "no TF32 tensor cores" in result.stderr
    assert "no TF32 tensor cores" not in result.stdout


@pytest.mark.parametrize(
    ("gpu", "which"), [("h100-sxm5-80gb", "workers"), ("h100", "gpu and workers")]
)
def test_what_moves_the_median_for_want_of_a_word_is_named(run: Run, gpu: str, which: str) -> None:
    said = ("--gpu", gpu, "--gpus", "8", "--precision", "amp", "--batch-size", "256")
    lines = run("predict", "resnet50", *said).stdout.splitlines()
    assert any(set(f"which {which}".split()) == set(line.split(" x ")[0].split()) for line in lines)


def test_the_speed_ups_of_compare_are_those_of_the_totals_it_shows(run_json: RunJson) -> None:
    said = ("--gpu", "a100", "--gpu", "h100", "--batch-size", "64", "--steps", "9")
    lines = run_json("compare", "resnet50", *said)["lines"]
    assert all(line["parts"]["unstated"] != 1 for line in lines)  # names of several cards
    base = {x["gpu"]: x["total_s"] for x in lines if x["precision"] == "fp32"}
    for line in lines:
        assert line["speedup_over_fp32"] == pytest.approx(base[line["gpu"]] / line["total_s"])


def test_compare_puts_gpus_and_precisions_side_by_side(run_json: RunJson) -> None:
    found = run_json("compare", "resnet50", "--gpus", "8", "--batch-size", "64", "--epochs", "1")
    lines = found["lines"]
    assert len({line["gpu"] for line in lines}) == 5
    assert "tf32 on v100-sxm2-16gb" in found["left_out"]
    assert ("v100-sxm2-16gb", "tf32") not in {(x["gpu"], x["precision"]) for x in lines}
    base = {x["gpu"]: x["total_s"] for x in lines if x["precision"] == "fp32"}
    slowest = max(x["total_s"] for x in lines)
    for line in lines:
        assert line["speedup_over_fp32"] == pytest.approx(base[line["gpu"]] / line["total_s"])
        assert line["speedup_over_slowest"] == pytest.approx(slowest / line["total_s"])


def test_compare_tells_of_which_gpus_or_precisions_something_is_assumed(run: Run) -> None:
    """Else what is assumed of one GPU alone would seem to move the times of all."""
    found = run("compare", "llama-3-8b", "--gpus", "8", "--batch-size", "1").stdout.splitlines()
    told = {line.split(" is assumed")[0].strip(): line for line in found if " is assumed" in line}
    assert told["act_ckpt: off"].endswith("as long; of a100-sxm4-80gb, h100-sxm5-80gb")
    assert told["seq_len: 8192 tokens"].endswith("as long")
    fp32 = run("compare", "gpt2", "--gpu", "a100", "--batch-size", "8", "--seq-len", "512").stdout
    assert any(" tf32: off " in line and line.endswith("; of fp32") for line in fp32.splitlines())


def test_compare_takes_its_gpus_and_precisions(run: Run) -> None:
    words = ("--batch-size", "8", "--gpu", "t4-16gb", "--precision", "amp", "--precision", "fp8")
    result = run("compare", "bert-base", *words)
    table = [line for line in result.stdout.splitlines() if line.startswith("t4-16gb")]
    assert len(table) == 1
    assert "mixed_fp16_fp32" in table[0]
    assert "fp8 on t4-16gb" in result.stdout.splitlines()[-1]


def test_compare_with_nothing_to_compare_is_an_error(run: Run) -> None:
    words = ("--batch-size", "8", "--gpu", "v100", "--precision", "tf32")
    assert "tf32 on v100-sxm2-16gb" in run("compare", "bert-base", *words, code=2).stderr


def test_memory_says_need_and_verdict(run: Run, run_json: RunJson) -> None:
    line = next(x for x in run("predict", *WORDS).stdout.splitlines() if x.startswith("memory"))
    assert line.endswith("fits with a margin of 10%")
    found = run_json("predict", *WORDS)["memory"]
    assert found["fits"]
    assert found["need_bytes"] < found["have_bytes"]
    parts = found["parts"]
    total = parts.pop("total_bytes")
    assert sum(parts.values()) == pytest.approx(total)


def test_a_job_that_does_not_fit_is_told_what_would(run: Run, run_json: RunJson) -> None:
    words = (
        "predict",
        "resnet50",
        "--gpu",
        "v100-sxm2-16gb",
        "--precision",
        "fp32",
        "--batch-size",
        "256",
    )
    answer = run(*words)
    lines = answer.stdout.splitlines()
    assert any("does not fit" in line for line in lines)
    assert "DOES NOT FIT: resnet50, fp32, 1 x v100-sxm2-16gb" in answer.stderr
    assert "GiB a GPU (10% kept free); would fit: " in answer.stderr
    assert "DOES NOT FIT" in run(*words, "--strict", code=1).stderr
    advice = run_json(*words)["memory"]["advice"]
    assert [f"would fit: {a}" for a in advice] == [
        line.strip() for line in lines if "would fit" in line
    ]


def test_a_comparison_marks_what_does_not_fit_and_can_be_strict(run: Run) -> None:
    words = ("llama2-7b", "--batch-size", "1", "--precision", "bf16-mixed", "--steps", "10")
    words += ("--option", "act_ckpt=off")
    answer = run(
        "compare", *words, "--gpu", "a100-40gb", "--gpu", "b300", "--gpus", "8", "--strict", code=1
    )
    (marked,) = [line for line in answer.stdout.splitlines() if "(does not fit)" in line]
    assert marked.startswith("a100-sxm4-40gb")
    assert "DOES NOT FIT: llama2-7b" in answer.stderr
    fitting = run("predict", *words, "--gpu", "b300", "--gpus", "8", "--strict")
    assert "DOES NOT FIT" not in fitting.stderr


def test_explain_lists_each_default_with_its_source_and_each_assumption(
    run: Run, run_json: RunJson
) -> None:
    words = ("explain", "gpt2", "--gpu", "a100", "--precision", "amp", "--batch-size", "8")
    found = run_json(*words, "--option", "act_ckpt=full")
    by = {one["field"]: one for one in found["software"]}
    assert (by["recompute"]["stated"], by["recompute"]["reason"]) == (True, "act_ckpt=full")
    assert by["fused_attention"]["value"]
    assert not by["fused_attention"]["stated"]
    assert "PyTorch 2.0" in by["fused_attention"]["reason"]
    assert all(one["reason"] for one in by.values())
    lines = [line.strip() for line in run(*words).stdout.splitlines()]
    for one in run_json(*words)["assumptions"]:
        (told,) = [line for line in lines if line.startswith(f"{one['field']}: ")]
        assert f"{one['value']} is assumed ({one['reason']})" in told


def test_epochs_of_nobody_knows_how_many_samples_are_told(run: Run) -> None:
    found = run(
        "predict", "yolo11n", "--gpu=a100", "--precision=amp", "--batch-size=16", "--epochs=9"
    )
    assert "state dataset= or dataset_size= for the time of 9 epochs" in found.stderr


def test_tokens_of_a_network_of_images_are_refused(run: Run) -> None:
    words = ("--gpu=a100", "--precision=amp", "--batch-size=16", "--seq-len=512")
    found = run("predict", "resnet50", *words, code=2)
    assert "invalid seq_len=512; resnet50 takes no tokens" in found.stderr
    found = run("predict", "resnet50", *words[:-1], "--mean-seq-len=9", code=2)
    assert "invalid mean_seq_len=9; resnet50 takes no tokens" in found.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--option=compile=on", "--option=compile=off"), "compile=off is stated too"),
        (("--framework-date=1800",), "invalid framework_date='1800'; expected a year"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_is_refused(
    run: Run, more: tuple[str, ...], said: str
) -> None:
    words = ("--gpu=a100", "--precision=amp", "--batch-size=16")
    assert said in run("predict", "resnet50", *words, *more, code=2).stderr


def test_a_comparison_names_each_assumption_once(run: Run) -> None:
    found = run("compare", "resnet50", "--gpu=a100", "--gpu=h100", "--batch-size=64")
    assert found.stdout.count("image_size: 224x224 is assumed") == 1


def test_what_a_short_name_and_a_missing_sharding_leave_open_is_assumed(run: Run) -> None:
    words = ("predict", "gpt2-xl", "--gpus", "8", "--precision", "amp", "--batch-size", "8")
    short = run(*words, "--gpu", "a100").stdout
    assert "gpu: a100-sxm4-80gb is assumed (not stated; it could be a100-sxm4-40gb or" in short
    assert "sharding: ddp is assumed" in short
    stated = run(*words, "--gpu", "a100-sxm4-80gb", "--sharding", "ddp").stdout
    assert not {"gpu:", "sharding:"} & set(stated.split())


@pytest.mark.parametrize("command", ["compare", "plan --within 9d"])
def test_every_command_tells_what_a_short_name_and_a_missing_sharding_leave_open(
    run: Run, command: str
) -> None:
    words = (*command.split(), "gpt2-xl", "--gpus=8", "--batch-size=1", "--steps=100")
    short = run(*words, "--gpu", "a100", "--precision", "amp").stdout
    assert "gpu: a100-sxm4-80gb is assumed (not stated; it could be a100-sxm4-40gb or" in short
    assert "sharding: ddp is assumed" in short
    exact = ("--gpu", "a100-sxm4-80gb", "--precision", "amp", "--sharding", "ddp")
    assert not {"gpu:", "sharding:"} & set(run(*words, *exact).stdout.split())
