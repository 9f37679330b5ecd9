"""Configurations that Hydra puts together from groups beside them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from predictor.identify.configured import LEAST_READ, MAX_READ
from predictor.identify.files import user_files
from predictor.identify.identify import identify
from predictor.identify.stated import Stated

PROGRAM = """import hydra, torch
@hydra.main(version_base=None, config_path="../conf", config_name="pretrain")
def main(cfg): ...
"""
FILES = {
    "src/train.py": PROGRAM,
    "conf/pretrain.yaml": "defaults:\n- _self_\n- model: small\n- optim: adamw\n"
    "- optional local: x\n"
    "- override hydra/launcher: submitit_slurm\neach: 24\ntrain: {epochs: 3}\n",
    "conf/model/small.yaml": "name: bert-base-uncased\n",
    "conf/model/large.yaml": "name: bert-large-uncased\n",
    "conf/optim/adamw.yaml": "# @package _global_\ntrain:\n  batch_size: ${each}\n",
    "conf/experiment/long.yaml": "# @package _global_\ndefaults:\n- override /model: large\n"
    "train: {epochs: 40}\n",
}


def read(directory: Path, *words: str, **files: str) -> Stated:
    for path, text in {**FILES, **{n.replace("__", "/"): t for n, t in files.items()}}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    argv = ("torchrun", "--nproc_per_node=4", "src/train.py", *words)
    return identify(argv=argv, files=user_files(directory))


def test_groups_say_their_part_and_the_program_names_the_whole(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.values["model"] == "bert-base"
    assert (found.values["batch_size"], found.values["epochs"]) == (24, 3.0)
    assert not found.problems


def test_the_command_chooses_a_group_and_its_values(tmp_path: Path) -> None:
    found = read(tmp_path, "model=large", "train.epochs=7")
    assert (found.values["model"], found.values["epochs"]) == ("bert-large", 7.0)
    assert found.unknown_model is None


def test_a_group_that_is_added_chooses_for_those_before_it(tmp_path: Path) -> None:
    found = read(tmp_path, "+experiment=long")
    assert (found.values["model"], found.values["epochs"]) == ("bert-large", 40.0)


@pytest.mark.parametrize("word", ["model=huge", "model=$SIZE", "+experiment=[long,wide]"])
def test_nothing_is_told_of_what_an_unread_group_may_change(tmp_path: Path, word: str) -> None:
    found = read(tmp_path, word)
    assert not {"model", "batch_size", "epochs"} & found.values.keys()
    assert any(problem.field == "file" for problem in found.problems)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n"])
def test_an_empty_group_says_nothing(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, "model=none", **{"conf/model/none.yaml": text})
    assert not found.problems
    assert "model" not in found.values
    assert found.values["batch_size"] == 24


def test_a_group_that_lists_itself_ends(tmp_path: Path) -> None:
    begun = time.process_time()
    found = read(
        tmp_path, conf__model__small="", **{"conf/model/small.yaml": "defaults: [small]\n"}
    )
    assert "file" in {problem.field for problem in found.problems}
    assert time.process_time() - begun < 0.5


def test_the_modules_that_it_makes_count_for_the_program(tmp_path: Path) -> None:
    shares = "class Data:\n    each = self.hparams.batch_size // self.trainer.world_size\n"
    found = read(
        tmp_path,
        **{
            "conf/optim/adamw.yaml": "_target_: src.data.Data\nbatch_size: 24\n",
            "src/data.py": shares,
        },
    )
    assert "batch_size" not in found.values


def test_no_more_groups_are_read_than_a_few(tmp_path: Path) -> None:
    names = [f"g{number}" for number in range(48)]
    lists = "".join(f"- {name}: x\n" for name in names)
    read(tmp_path, **{"conf/pretrain.yaml": f"defaults:\n{lists}"})
    asked: list[str] = []

    def counted(path: str) -> str | None:
        asked.append(path)
        return "defaults: [a, b, c, d]" if "/g" in path else user_files(tmp_path)(path)

    found = identify(argv=("python", "src/train.py"), files=counted)
    assert len(asked) <= MAX_READ / LEAST_READ + 8
    assert any(problem.field == "file" for problem in found.problems)
