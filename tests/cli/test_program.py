"""The program as a whole: its help, its errors, its speed to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import Result

from predictor.cli.main import main
from predictor.cli.predict import predict
from predictor.job.training_job import JOB_FIELDS, TrainingJob

COMMANDS = (
    "predict",
    "explain",
    "estimate",
    "identify",
    "compare",
    "plan",
    "sweep",
    "evaluate",
    "validate",
    "calibrate",
    "drift",
    "progress",
    "backtest",
    "fit",
    "models",
    "history",
    "capacity",
    "catalog",
    "gpus",
    "profile",
    "profiles",
    "trace",
)
PLUGINS = tuple(sorted(point.name for point in entry_points(group="precision_time.commands")))
JOB = ("predict", "resnet50", "--gpu", "a100", "--precision", "amp", "--batch-size", "8")
Run = Callable[..., Result]


def test_help_lists_every_command(run: Run) -> None:
    text = run("--help").stdout
    listed = [line.split()[0] for line in text.partition("Commands:")[2].split("\n") if line]
    assert listed == [*COMMANDS, *PLUGINS]
    assert "slurm" in PLUGINS


@pytest.mark.parametrize("command", [*COMMANDS, *PLUGINS])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    assert len(run(command, "--help").stdout.splitlines()) > 4


@pytest.mark.parametrize(
    "words", [(*JOB, "--gpu", "v100"), ("estimate", "--gpus=1", "--gpus=2", "x")]
)
def test_an_option_of_one_value_is_given_once(run: Run, words: tuple[str, ...]) -> None:
    assert "is given more than once: it takes one value" in run(*words, code=2).stderr


def numbers(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Option]]:
    """Every option of a command, and of those below it, that takes a number alone."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from numbers(inner, *path, name)
    for one in command.params:
        if isinstance(one, click.Option) and isinstance(
            one.type, click.types.FloatParamType | click.types.IntParamType
        ):
            yield path, one


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e400", "9" * 400, "9" * 5000, "1M", ""])
def test_no_option_takes_what_is_no_finite_number(text: str) -> None:
    found = list(numbers(main))
    assert len(found) > 30
    for _, option in found:
        with pytest.raises(click.BadParameter, match=r"; expected a (whole )?number (from|above) "):
            option.type.convert(text, option, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*JOB, "--epochs", "2M"), "invalid epochs='2M'; expected a number above 0, to 1000000"),
        ((*JOB, "--framework-date", "nan"), "invalid framework_date='nan'; expected a number"),
        ((*JOB, "--gpus", "9" * 400), "...'; expected a number such as 256"),
        (("estimate", "--memory-gib", "nan", "python", "x.py"), "expected a number from 0 to"),
        (("backtest", "--jobs", "0"), "expected a whole number from 1 to"),
        (("evaluate", "--seed", "-1", "x.csv"), "expected a whole number from 0 to"),
        (("backtest", "--pool", f"a:{'9' * 5000}"), "expected NAME:GPUS or NAME"),
    ],
)
def test_a_number_that_cannot_be_is_refused_in_words(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    assert said in run(*words, code=2).stderr


def test_every_field_of_a_job_is_an_option_with_its_default() -> None:
    options = {one.name: one for one in predict.params if isinstance(one, click.Option)}
    context = click.Context(predict)
    stated = {name: TrainingJob.__dataclass_fields__[name] for name in JOB_FIELDS}
    # The argument, and what a stated precision makes moot.
    del stated["model"], stated["trainer"]
    assert stated.keys() <= options.keys()
    for name, one in stated.items():
        if one.default and isinstance(one.default, int | str):
            assert options[name].get_default(context) == one.default
    assert options["gpu"].required
    assert options["precision"].required


def test_help_needs_no_numerical_library() -> None:
    program = "import sys, predictor.cli.main; print({'numpy', 'rich', 'joblib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.usefixtures("fitted")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batch-size", "0"), ("batch_size='0'", "from 1 to")),
        (("--gpus", "a100"), ("gpus='a100'", "expected a number such as 256")),
        (("--sharding", "zero9"), ("sharding='zero9'", "zero3", "fsdp")),
        (("--precision", "fp12"), ("precision='fp12'", "mixed_bf16_fp32")),
        (("--precision", "fp8"), ("precision='mixed_fp8_bf16'", "no FP8 tensor cores")),
        (("--gpu", "a1000"), ("gpu='a1000'", "a100-sxm4-80gb")),
        (("--steps", "5", "--epochs", "2"), ("steps=5", "not both")),
        (("--image-size", "1x2x3x4"), ("image_size='1x2x3x4'", "HxWxD")),
        (("--image-size", "8x8x8"), ("image_size='8x8x8'", "expected H or HxW")),
        (("--global-batch-size", "9"), ("global_batch_size=9", "multiple of")),
        (("--gpus", "3", "--tensor-parallel", "2"), ("gpus=3", "multiple")),
        (("--gpus", "16", "--fabric", "string"), ("fabric='string'", "ib-hdr")),
        (("--option", "=on"), ("option='=on'", "key=value")),
        (("--version", "latest"), ("'latest' is not a version",)),
    ],
)
def test_an_error_is_one_line_that_names_field_value_and_what_is_accepted(
    run: Run, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    at = JOB.index(words[0]) if words[0] in JOB else len(JOB)
    result = run(*JOB[:at], *JOB[at + 2 :], *words, code=2)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert [part for part in said if part not in lines[0]] == []


def test_an_unknown_model_lists_the_nearest_names(run: Run) -> None:
    result = run("predict", "resnet5O", *JOB[2:], code=2)
    assert "model='resnet5O'" in result.stderr
    assert "resnet50" in result.stderr.partition("nearest names:")[2]


def test_an_argument_written_as_an_option_is_told_how_it_is_written(run: Run) -> None:
    error = run("predict", "--model", "resnet50", code=2).stderr
    assert "no option --model: MODEL is written without it" in error
    assert "--help'?" not in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_ends_the_program_with_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "predictor.cli.main", "gpus"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode
    assert ended.stderr.startswith("error: No space left on device")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("predic", "resnet50"), "'predic'; nearest are predict"),
        (("history", "shw"), "expected one of show"),
        (("predict",), "precision-time catalog list"),
        (("compare", "resnet50"), "error: no batch_size; give batch_size"),
        (("trace",), "PACKAGE.MODULE:NAME or --hf-config"),
    ],
)
def test_a_missing_or_misspelt_word_is_told_what_is_expected(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    assert said in run(*words, code=2).stderr


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_all_that_is_missing_is_named_at_once(run: Run, command: str) -> None:
    names = ("'MODEL'", "'--precision'", "'--gpu'", "'--batch-size' or '--global-batch-size'")
    said = run(command, code=2).stderr
    assert [name for name in names if f" {name}." not in said] == []
    said = run(command, "resnet50", "--gpu", "v100", "--batch-size", "8", code=2).stderr
    assert [name for name in names if f" {name}." in said] == ["'--precision'"]
    said = run(command, "bert-large", "--gpu", "v100", "--phase", "steps=9,batch=8", code=2).stderr
    assert "batch" not in said
