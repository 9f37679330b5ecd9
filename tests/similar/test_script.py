"""Which scripts and commands are the same to the memory of a site."""

from __future__ import annotations

import pytest

from predictor.site.similar.request import command_signature, script_signature

ONE = "#!/bin/bash\n#SBATCH --time=1:00\npython /home/ann/run.py --epochs 3 --model vit # quick\n"


@pytest.mark.parametrize(
    "same",
    [
        ONE.replace("3", "300"),
        ONE.replace("/home/ann/", "/scratch/copy/"),
        ONE.replace("--time=1:00", "--time=9:00"),
        ONE.replace("# quick", "# long"),
        ONE.replace("python ", "python   "),
    ],
)
def test_numbers_paths_directives_and_comments_make_no_other_script(same: str) -> None:
    assert script_signature(same) == script_signature(ONE)


@pytest.mark.parametrize(
    "other",
    [ONE.replace("vit", "unet"), ONE.replace("run.py", "eval.py"), ONE.replace("--epochs", "--n")],
)
def test_words_entry_points_and_names_of_arguments_do(other: str) -> None:
    assert script_signature(other) != script_signature(ONE)


def test_nothing_is_no_script() -> None:
    assert script_signature("#!/bin/bash\n# nothing\n") == script_signature("") == ""


def test_a_submit_line_and_what_a_hook_sees_are_one_command() -> None:
    line = command_signature("sbatch -N 1 --gpus=4 train.sh --epochs 3", "/home/ann")
    assert line == command_signature("/home/ann/train.sh --epochs 90", "/home/ann")
    assert line != command_signature("train.sh --epochs 3", "/home/bob")


@pytest.mark.parametrize("command", ["train.sh --epochs 3", "sbatch --wrap hostname", ""])
def test_a_file_name_alone_is_no_command(command: str) -> None:
    assert command_signature(command, "") == ""
