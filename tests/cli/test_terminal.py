"""What people see: tables that fit the terminal, examples, completion, and how commands end."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from history_runs import run_number

import predictor.cli
from predictor.cli import console
from predictor.cli.main import main
from predictor.site.history.store import History

Run = Callable[..., Result]
PROGRAM = (sys.executable, "-m", "predictor.cli.main")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = yaml.safe_load((Path(predictor.cli.__file__).with_name("examples.yaml")).read_text())
RESNET = "resnet50 --batch-size 256 --epochs 90 --dataset imagenet-1k --gpus 8"
SPACE = {
    "job": {"model": "resnet50", "gpu": "a100-sxm4-80gb", "batch_size": 64, "steps": 1000},
    "vary": {"precision": ["fp32", "amp"], "gpus": [1, 4]},
    "trials": 3,
}
TABLES = (
    f"predict {RESNET} --gpu a100-sxm4-80gb --precision amp --prices prices.yaml",
    f"explain {RESNET} --gpu a100-sxm4-80gb --precision amp",
    f"compare {RESNET}",
    "compare gpt2-124m --batch-size 8",
    "plan resnet50 --within 24h --epochs 1 --dataset imagenet-1k --global-batch-size 256",
    "sweep space.yaml --prices prices.yaml",
    "evaluate runs.csv --by gpu,precision",
    "identify -- torchrun --nproc_per_node 8 train.py --model resnet50 --batch-size 64 --amp",
    "estimate job.sh --user ada --gpus 4",
    "history show --history site.sqlite",
    "history status --history site.sqlite",
    "drift --history site.sqlite",
    "backtest --history site.sqlite",
    "capacity whatif --from history.csv.gz --since 2025-02-01 --until 2025-02-02 "
    "--gpus v100-sxm2-16gb:24/8 --gpus a100-sxm4-80gb:24/8 --gpus h100-sxm5-80gb:24/8 "
    "--add a100-sxm4-80gb:8",
    "catalog list bert",
    "catalog show resnet50",
    "gpus",
    "models list",
    "profiles list",
    "profiles check",
    "profiles coverage --gpu a100-sxm4-80gb",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the files the commands name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.yaml").write_text(json.dumps(SPACE))
    prices = {"currency": "EUR", "prices_per_gpu_hour": {"a100-sxm4-80gb": 1.5}}
    (tmp_path / "prices.yaml").write_text(json.dumps(prices))
    rows = (ROOT / "profiles/measurements/dlperf.csv").read_text("utf-8").splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(rows[:20]) + "\n")
    with History.open(str(tmp_path / "site.sqlite")) as history:
        history.add([run_number(n) for n in range(8)])
    sample = ROOT / "profiles/samples/history.csv.gz"
    (tmp_path / "history.csv.gz").symlink_to(sample)
    for name in ("job.sh", "slurm-123.out", "config.json", "history.sqlite"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "my-gpu").mkdir()
    return tmp_path


@pytest.mark.usefixtures("fitted", "place")
@pytest.mark.parametrize("words", TABLES, ids=lambda words: " ".join(words.split()[:2]))
def test_every_table_fits_the_terminal(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CliRunner().invoke(main, shlex.split(words))
    for width in (80, 60):
        monkeypatch.setattr(console, "columns", lambda width=width: width)
        result = CliRunner().invoke(main, shlex.split(words))
        assert result.exit_code == whole.exit_code in (0, 1), result.output
        lines = result.stdout.splitlines()
        assert lines
        # One word alone, such as a path, may be longer.
        assert [line for line in lines if len(line) > width and " " in line.strip()] == []
        # Folding loses no word.
        assert set(whole.stdout.split()) <= set(result.stdout.split())


def in_terminal(columns: int, *words: str, **environment: str) -> str:
    """What a command writes to a terminal of this width, stderr too."""
    process, terminal = pty.fork()
    if process == 0:
        size = struct.pack("HHHH", 40, columns, 0, 0)
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)
        os.environ.pop("COLUMNS", None)
        os.execve(words[0], words, {**os.environ, **environment})
    written = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.waitpid(process, 0)
    return written.decode().replace("\r\n", "\n")


def test_a_real_terminal_is_measured() -> None:
    lines = in_terminal(60, *PROGRAM, "gpus").splitlines()
    assert max(map(len, lines)) <= 60
    assert "GPU   a100-sxm4-80gb" in lines


def test_what_is_piped_is_not_folded(run: Run) -> None:
    assert max(map(len, run("catalog", "list", "bert").stdout.splitlines())) > 100


def test_an_error_is_red_unless_the_user_wants_no_colour() -> None:
    words = (*PROGRAM, "catalog", "show", "no-such-network")
    assert "\x1b[31merror:" in in_terminal(80, *words, NO_COLOR="")
    assert "\x1b[" not in in_terminal(80, *words, NO_COLOR="1")


def test_what_does_not_fit_its_gpu_is_red() -> None:
    words = ("compare", "resnet50", "--gpu", "v100-sxm2-16gb", "--batch-size", "256")
    lines = in_terminal(80, *PROGRAM, *words, NO_COLOR="").splitlines()
    marked = [line for line in lines if line.startswith("\x1b[31mv100")]
    assert len(marked) == 1
    assert "fp32 (does not" in marked[0]
    assert max(len(click.unstyle(line)) for line in lines if "warning" not in line) <= 80


def test_a_bar_tells_the_time_left() -> None:
    program = (
        "import time; from predictor.cli.console import progress\n"
        "with progress('working') as told:\n"
        "    for step in range(8):\n"
        "        told('a part', step / 10); time.sleep(0.2)\n"
    )
    said = in_terminal(100, sys.executable, "-c", program, TERM="xterm")
    assert "working: a part" in said
    assert "0:00:0" in said.replace("-:--:--", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{shlex.join((*PROGRAM, 'catalog', 'list'))} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("model")
    assert done.stderr == ""


def test_a_terminal_without_utf_8_gets_question_marks() -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        (*PROGRAM, "identify", "--", "python", "train.py", "--model", "rés-net", "--epochs", "3"),
        capture_output=True,
        env={**os.environ, **plain},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"epochs" in done.stdout


def test_ctrl_c_ends_a_long_command_in_one_line(home: Path) -> None:
    process = subprocess.Popen(
        (*PROGRAM, "fit"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("fitting a predictor")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.split() == ["Aborted!"]
    assert not list(home.rglob("*.npz"))


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        (["predict"], "resnet5", "resnet50"),
        (["compare"], "vit_base_r2", "vit_base_r26_s32_224"),
        (["catalog", "show"], "gpt2-", "gpt2-124m"),
        (["predict", "resnet50", "--gpu"], "h100-s", "h100-sxm5-80gb"),
        (["plan", "resnet50", "--gpu"], "a100-p", "a100-pcie-40gb"),
        (["predict", "resnet50", "--precision"], "mixed_b", "mixed_bf16_fp32"),
        ([], "comp", "compare"),
    ],
)
def test_a_shell_completes_commands_networks_gpus_and_precisions(
    words: list[str], begun: str, expected: str
) -> None:
    shell = ShellComplete(main, {}, "precision-time", "_PRECISION_TIME_COMPLETE")
    found = [item.value for item in shell.get_completions(words, begun)]
    assert expected in found
    assert all(value.startswith(begun) for value in found)


def commands_of(text: str) -> list[list[str]]:
    """The commands of an example, without the name of the program."""
    lines = text.replace("\\\n", " ").strip().splitlines()
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_shown_and_understood(name: str, run: Run) -> None:
    shown = run(*name.split(), "--help").stdout
    for words in commands_of(EXAMPLES[name]):
        assert " ".join(words[:2]) in " ".join(shown.split())
        command: click.Command | None = main
        context = click.Context(main, info_name="precision-time")
        while isinstance(command, click.Group):
            word = words.pop(0)
            command = command.get_command(context, word)
            assert command is not None, word
            if not isinstance(command, click.Group):
                command.make_context(word, words, parent=context)
            context = click.Context(command, parent=context, info_name=word)


def test_every_command_has_an_example() -> None:
    context = click.Context(main, info_name="precision-time")
    told = {name.split()[0] for name in EXAMPLES}
    names = set(main.list_commands(context))
    assert names - told <= {"slurm", "k8s"}
