"""A pinned predictor stays, whatever is put to use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from predictor.cli.main import main
from predictor.errors import ArtifactError
from predictor.estimate import artifacts


def stored() -> str:
    return artifacts.save({"a": np.arange(3.0)}, {}, tables_hash="t", figures={"f": 1.0}).version


def test_a_pinned_version_cannot_be_removed_until_it_is_unpinned(home: Path) -> None:
    first, second = stored(), stored()
    artifacts.use(first)
    artifacts.pin(first)
    artifacts.use(second)
    with pytest.raises(ArtifactError, match="pinned"):
        artifacts.remove(first)
    assert artifacts.load(first).manifest.version == first
    artifacts.unpin(first)
    artifacts.remove(first)
    assert [m.version for m in artifacts.versions()] == [second]


def test_pinning_twice_is_pinning_once(home: Path) -> None:
    version = stored()
    artifacts.pin(version)
    artifacts.pin(version)
    assert artifacts.pinned() == (version,)


def test_what_is_not_there_cannot_be_pinned_nor_unpinned(home: Path) -> None:
    version = stored()
    with pytest.raises(ArtifactError, match="is not a version"):
        artifacts.pin("nothing")
    with pytest.raises(ArtifactError, match="not pinned"):
        artifacts.unpin(version)


def test_the_list_tells_use_and_pins_apart(home: Path) -> None:
    first, second = stored(), stored()
    artifacts.use(second)
    assert CliRunner().invoke(main, ["models", "pin", first]).stdout == f"{first}\n"
    found = CliRunner().invoke(main, ["models", "list", "--format", "json"])
    rows = {
        r["version"]: (r["in_use"], r["pinned"])
        for r in json.loads(found.stdout)
        if r["version"] != artifacts.shipped().version
    }
    assert rows == {first: (False, True), second: (True, False)}
    refused = CliRunner().invoke(main, ["models", "remove", first])
    assert (refused.exit_code, "unpin" in refused.stderr) == (2, True)
