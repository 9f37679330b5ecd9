"""`precision-time identify` shows what is read of a script or a command, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_a_command_is_shown_field_by_field(run: Run) -> None:
    shown = run(
        "identify",
        "--",
        "torchrun",
        "train.py",
        "--model",
        "resnet50",
        "--batch-size",
        "64",
        "--amp",
    ).stdout
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.split()[1:]}
    assert rows["model"] == ["resnet50", "script"]
    assert rows["batch_size"] == ["64", "script"]
    assert rows["precision"] == ["mixed_fp16_fp32", "script"]
    assert rows["missing:"] == ["steps", "or", "epochs"]


def test_a_script_is_read_with_its_arguments_and_variables(
    run_json: RunJson, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\npython train.py --model $1 --batch-size $BS --epochs 3\n")
    found = run_json("identify", str(script), "vgg16", "--env", "BS=32", "--comment", "amp=on")
    assert {name: told["value"] for name, told in found["fields"].items()} == {
        "model": "vgg16",
        "batch_size": "32",
        "epochs": "3",
        "precision": "mixed_fp16_fp32",
    }
    assert found["fields"]["precision"]["from"] == "comment"
    assert (found["missing"], found["doubts"], found["problems"]) == ([], [], [])


def test_a_program_is_a_command_and_not_a_script(run_json: RunJson, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("#!/usr/bin/env python\nprint('python x.py --epochs 9')\n")
    found = run_json("identify", str(program), "--model", "vgg16", "--epochs", "3")
    assert found["fields"]["epochs"]["value"] == "3"


def test_a_file_that_is_not_read_keeps_the_job_from_a_prediction(run: Run) -> None:
    shown = run("identify", "--", "python", "train.py", "--model", "vgg16", "--config", "c.yaml")
    assert "keeps it from a prediction: --config c.yaml is not read" in shown.stdout


def test_what_does_not_train_is_said_to_be_no_job(run: Run, run_json: RunJson) -> None:
    assert run("identify", "--", "ls", "-l").stdout == "nothing is read of a training job\n"
    assert run_json("identify", "ls", "-l")["fields"] == {}


@pytest.mark.parametrize("variable", ["BS", "=3"])
def test_a_variable_without_name_or_value_is_refused(run: Run, variable: str) -> None:
    assert "is not NAME=VALUE" in run("identify", "--env", variable, "ls", code=2).output


def test_the_files_a_script_names_are_read_where_the_user_is(
    run_json: RunJson, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsrun python train.py --config c.yaml --epochs 3\n")
    (tmp_path / "c.yaml").write_text("model: resnet50\nbatch_size: 64\namp: true\nepochs: 90\n")
    monkeypatch.chdir(tmp_path)
    found = run_json("identify", str(script))
    assert {name: (told["value"], told["from"]) for name, told in found["fields"].items()} == {
        "model": ("resnet50", "file"),
        "batch_size": ("64", "file"),
        "epochs": ("3", "script"),
        "precision": ("mixed_fp16_fp32", "file"),
    }
    assert found["doubts"] == []
    monkeypatch.chdir("/")
    assert "c.yaml is not read" in run("identify", str(script)).output


def test_flags_that_nobody_knows_are_told(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\npython train.py --model resnet50 --pgd-steps 7 --lr 0.1\n")
    told = "what --pgd-steps may add to the time: nothing is added, and no limit set"
    assert f"not known: {told}" in run("identify", str(script)).stdout
    assert f"assumed   {told}" in run("estimate", str(script)).stdout


def test_a_long_name_that_nobody_knows_shows_that_it_is_cut(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\npython train.py --model resnet50 --{'pgd' * 20} 7\n")
    assert f"what --{'pgd' * 20}"[:45] + "... may add" in run("identify", str(script)).stdout


def test_a_program_that_only_running_names_is_told_as_such(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n$(cat program.txt) --model resnet50\n")
    told = "what a program without a name may add to the time"
    assert f"not known: {told}" in run("identify", str(script)).stdout


def test_phases_are_a_length(run_json: RunJson) -> None:
    comment = 'model=bert-large precision=amp batch=8 phases="steps=3,seq=128;steps=4,seq=512"'
    assert run_json("identify", "true", "--comment", comment)["missing"] == []


@pytest.mark.parametrize("command", ["identify", "estimate"])
@pytest.mark.parametrize("word", ["jbo.sh", "train.sbatch", ".", "nosuch.txt", "./nosuch"])
def test_a_script_that_is_not_there_is_an_error_and_no_command(
    run: Run, command: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(command, word, code=2)
    assert f"there is no file {word}" in found.stderr
    run(command, "/nosuch/python", "train.py")


def test_a_file_without_a_shell_in_its_first_line_is_told(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("python train.py --model resnet50 --epochs 3\n")
    assert "does not start with #! and a shell" in run("identify", str(script)).stderr


def test_data_that_are_not_known_are_told_by_their_place(run: Run) -> None:
    words = ("train.py", "--model", "resnet50", "--epochs", "9", "--data", "/scratch/ada/images")
    assert "'/scratch/ada/images' is not known" in run("identify", "--", "python", *words).stderr


def test_the_comment_in_a_script_counts_as_slurm_takes_it(
    run_json: RunJson, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --comment='model=resnet50 batch=64'\npython x.py\n")
    fields = run_json("identify", str(script))["fields"]
    assert fields["batch_size"] == {"value": "64", "from": "comment"}
