"""The file that daemons read: fixed times of the site, and its runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_runs import run_of, told

from predictor.errors import ArtifactError
from predictor.site.calibration.run_reader import site_source
from predictor.site.calibration.site_state import FILE_NAME, SiteState, read_state, write_state


def learned() -> SiteState:
    return SiteState.learn([run_of(n, reported=told(0.1, startup_s=90.0)) for n in range(40)])


def test_what_is_written_is_read(home: Path) -> None:
    state = learned()
    assert write_state(state) == home / FILE_NAME
    found = read_state()
    assert found.fixed == state.fixed
    assert found.memory.runs() == state.memory.runs()
    assert found.memory.coverage.as_dict() == state.memory.coverage.as_dict()


def test_no_name_of_anybody_is_written(home: Path) -> None:
    state = SiteState.learn([run_of(n, user="ann", name="secret") for n in range(40)])
    text = write_state(state).read_text()
    assert "ann" not in text
    assert "secret" not in text


def test_there_may_be_none(home: Path) -> None:
    assert read_state().fixed == ()
    assert read_state().memory.runs() == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 9}', '{"format": 1, "fixed": 3}'])
def test_another_file_is_refused(home: Path, text: str) -> None:
    path = write_state(SiteState())
    path.write_text(text)
    with pytest.raises(ArtifactError, match="precision-time calibrate"):
        read_state()


def test_a_file_that_others_can_write_is_refused(home: Path) -> None:
    write_state(SiteState()).chmod(0o666)
    with pytest.raises(ArtifactError, match="other users"):
        read_state()


def test_a_site_without_a_name_is_the_only_cluster_there_is() -> None:
    state = learned()
    assert state.cluster("") == state.cluster("alpha") == state.cluster("site:alpha")
    assert state.cluster("") is not None
    assert state.cluster("beta") is None


def test_the_source_of_a_site_is_told_from_other_sources() -> None:
    assert site_source("alpha") == site_source("site:alpha") == "site:alpha"
    assert site_source("") == ""
