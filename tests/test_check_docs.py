"""The documentation check finds what is wrong, and lets what is right stand."""

from __future__ import annotations

from pathlib import Path

import check_docs
import click
import pytest


@click.group()
def program() -> None:
    pass


@program.command()
@click.argument("model")
@click.option("--gpus", type=int)
@click.option("--precision", type=click.Choice(["fp32", "tf32"]))
@click.option("--from", "source", type=click.Path(exists=True))
def predict(model: str, gpus: int, precision: str, source: str) -> None:
    raise AssertionError("the check must run nothing")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in check_docs.TOP:
        (tmp_path / name).write_text("# Title\n")
    (tmp_path / "Makefile").write_text(".PHONY: demo\ndemo: x\n\techo\n")
    return tmp_path


def check(root: Path, text: str) -> list[str]:
    (root / "README.md").write_text(text)
    return list(check_docs.findings(root, program))


def shell(line: str) -> str:
    return f"```sh\n{line}\n```\n"


@pytest.mark.parametrize(
    "text",
    [
        "[a](CHANGELOG.md), [b](CHANGELOG.md#title), [c](https://example.org/x), [d](#one-more)\n"
        "# One more\n",
        shell("make demo PYTHON=python3.12"),
        shell("$ precision-time predict resnet50 --gpus 8 \\\n    --precision tf32 | head"),
        shell("PRECISION_TIME_HOME=here .venv/bin/precision-time predict x  # why"),
        shell("precision-time predict --help"),
        shell("precision-time predict <model> --gpus ..."),
        shell("precision-time predict x --from runs.csv"),
        "```python\nfrom precision_time import __all__\n```\n",
        "```\nprecision-time printed: nonsense\n```\n",
    ],
)
def test_the_truth_stands(root: Path, text: str) -> None:
    assert check(root, text) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("[a](gone.md)", "link to gone.md: no such file"),
        ("[a](CHANGELOG.md#gone)", "link to CHANGELOG.md#gone: no such heading"),
        ("see /home/me/x", "path /home/me/x exists on one machine only"),
        (shell("make demo deploy"), "make deploy: no such target"),
        (shell("precision-time guess x"), "precision-time guess x: no such command 'guess'"),
        (shell("precision-time predict x --cpus 1"), "No such option"),
        (shell("precision-time predict x --gpus many"), "'many' is not a valid integer"),
        (shell("precision-time predict x --precision fp4"), "'fp4' is not one of"),
        (shell("precision-time predict"), "Missing argument 'MODEL'"),
        ("```python\nfrom precision_time import nothing\n```\n", "precision_time has no nothing"),
        ("```python\nx = = 1\n```\n", "Python block does not parse"),
    ],
)
def test_what_is_wrong_is_found(root: Path, text: str, finding: str) -> None:
    (found,) = check(root, text)
    assert found.startswith("README.md: ")
    assert finding in found


def test_a_missing_document_is_an_error(root: Path) -> None:
    (root / "CHANGELOG.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"CHANGELOG\.md"):
        check(root, "")
