"""What a plug-in command says to install exists."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from predictor.cli.groups import plugin_points
from predictor.errors import NotInstalledError
from predictor.optional import needs

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
COMMANDS = [
    (group, name)
    for group, points in PROJECT["entry-points"].items()
    if group in ("precision_time.commands", "precision_time.ingest", "precision_time.queue")
    for name in points
]


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_the_remedy_for_a_missing_package_names_an_extra(group: str, name: str) -> None:
    if name not in plugin_points(group):
        pytest.skip("the package is not installed in this environment")
    with (
        pytest.raises(NotInstalledError, match=rf"pip install 'precision-time\[{name}\]'"),
        needs(name),
    ):
        raise ModuleNotFoundError("no uvicorn", name="uvicorn")
    assert name in PROJECT["optional-dependencies"]


def test_a_module_of_ours_that_is_missing_is_not_taken_for_a_package() -> None:
    with pytest.raises(ModuleNotFoundError), needs("slurm"):
        raise ModuleNotFoundError("no module", name="slurm_plugin.nowhere")
