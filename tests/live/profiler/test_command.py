"""The command: what it prints, and what it says of arguments that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from predictor.cli.main import main
from profiles import joined

AS_JSON = ("--format", "json")


def ran(*arguments: str) -> Result:
    joined.forget()
    return CliRunner().invoke(main, ["profile", *arguments])


def test_text_and_json_say_what_was_measured(tmp_path: Path, home: Path) -> None:
    out = tmp_path / "tables"
    said = ran("--device", "cpu", "--out", str(out), "--minutes", "0.25")
    assert said.exit_code == 0, said.output
    assert f"`precision-time profiles add {out}`" in said.stdout
    for minutes in (0.03, *[0.25] * 20):  # a busy machine may have got no row yet
        told = ran("--device", "cpu", "--out", str(out), "--minutes", str(minutes), *AS_JSON)
        summary = json.loads(told.stdout)
        assert summary["device"].startswith("cpu-")
        if summary["stood"] > 0:
            break
    assert summary["stood"] > 0
    added = CliRunner().invoke(main, ["profiles", "add", str(out)])
    assert added.exit_code == 0, added.output
    assert summary["device"] in added.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "tpu"), "expected cpu, cuda or cuda:N"),
        (("--device", "cpu", "--minutes", "0"), "minutes=0.0"),
        (("--device", "cpu", "--ranks", "1"), "ranks=1"),
        (("--device", "cpu", "--ranks", "2", "--backend", "nccl"), "expected gloo"),
    ],
)
def test_an_impossible_argument_is_named(
    arguments: tuple[str, ...], words: str, tmp_path: Path, home: Path
) -> None:
    said = ran(*arguments, "--out", str(tmp_path / "x"))
    assert said.exit_code == 2
    assert words in said.stderr
    assert not (tmp_path / "x").exists()
