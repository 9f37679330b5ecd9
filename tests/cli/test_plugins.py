"""What a plug-in command says to install exists."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from predictor.cli.plugins import declared, remedy

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
COMMANDS = [
    (group, name)
    for group, points in PROJECT["entry-points"].items()
    if group in ("precision_time.commands", "precision_time.ingest", "precision_time.queue")
    for name in points
]


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_the_remedy_for_a_missing_package_names_an_extra(group: str, name: str) -> None:
    if name not in declared(group):
        pytest.skip("the package is not installed in this environment")
    said = remedy(group, name, ModuleNotFoundError("no uvicorn", name="uvicorn"))
    assert said == f"pip install 'precision-time[{name}]'"
    assert name in PROJECT["optional-dependencies"]
