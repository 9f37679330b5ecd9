"""The one line of slurm.conf: whatever stands there, only it changes, and it changes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slurm_plugin.errors import InstallError
from slurm_plugin.install import slurm_conf
from slurm_plugin.install.slurm_conf import PARAMETER, settings, value

HEAD = """\
ClusterName=bench # JobSubmitPlugins=commented
SlurmctldHost=ctl(127.0.0.1)
SlurmUser=slurm
"""
TAIL = "NodeName=a1 Gres=gpu:a100:4 Feature=x State=UNKNOWN\nPartitionName=gpu Nodes=a1\n"

names = st.sampled_from(["all_partitions", "cray_aries", "defaults", "job_submit/throttle"])
keys = st.sampled_from([PARAMETER, "jobsubmitplugins", "JOBSUBMITPLUGINS"])
gaps = st.sampled_from(["", " ", "  ", "\t"])
comments = st.sampled_from(["", " # lua", "   # JobSubmitPlugins=lua", " SlurmdPort=6818"])
endings = st.sampled_from(["", "\n", "\n\n", "\n# the end"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A line that sets the parameter in one of the ways Slurm reads."""
    plugins = ",".join(draw(st.lists(names, min_size=1, max_size=3, unique=True)))
    if draw(st.booleans()):
        plugins = f'"{plugins}"'
    return f"{draw(gaps)}{draw(keys)}{draw(gaps)}={draw(gaps)}{plugins}{draw(comments)}"


@given(line=lines(), ending=endings)
def test_lua_is_added_behind_what_is_there_and_taken_back_byte_for_byte(
    line: str, ending: str
) -> None:
    text = f"{HEAD}{line}\n{TAIL}".rstrip("\n") + ending
    after = slurm_conf.with_plugin(text, "slurm.conf")
    before, now = settings(text, PARAMETER)[-1], settings(after, PARAMETER)[-1]
    assert now.plugins == (*before.plugins, "lua")
    assert _other_lines(after) == _other_lines(text)
    assert slurm_conf.with_plugin(after, "slurm.conf") == after
    restored = slurm_conf.without_plugin(after, text)
    assert restored is not None
    assert settings(restored, PARAMETER)[-1].plugins == before.plugins


@given(ending=endings)
def test_without_the_parameter_one_line_is_added_and_taken_back(ending: str) -> None:
    text = (HEAD + TAIL).rstrip("\n") + ending
    after = slurm_conf.with_plugin(text, "slurm.conf")
    assert value(after, PARAMETER) == "lua"
    assert after.startswith(text)
    assert after.endswith("\nJobSubmitPlugins=lua\n")
    restored = slurm_conf.without_plugin(after, text)
    assert restored is not None
    assert restored.rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("present", ["lua", "lua,all_partitions", "job_submit/lua", '"x,lua"'])
def test_lua_that_is_there_already_changes_nothing(present: str) -> None:
    text = f"{HEAD}JobSubmitPlugins={present}\n{TAIL}"
    assert slurm_conf.with_plugin(text, "slurm.conf") == text


def test_a_commented_or_longer_name_is_not_the_parameter() -> None:
    text = "#JobSubmitPlugins=lua\nMyJobSubmitPlugins=lua\nX=\\#1 # JobSubmitPlugins=lua\n"
    assert settings(text, PARAMETER) == ()


def test_an_empty_value_is_filled() -> None:
    after = slurm_conf.with_plugin(f"JobSubmitPlugins=\n{TAIL}", "slurm.conf")
    assert after == f"JobSubmitPlugins=lua\n{TAIL}"


def test_the_parameter_set_twice_is_refused_with_both_lines() -> None:
    text = f"JobSubmitPlugins=a\n{TAIL}JobSubmitPlugins=b\n"
    with pytest.raises(InstallError, match=r"slurm\.conf: .* lines 1, 4"):
        slurm_conf.with_plugin(text, "slurm.conf")


def test_a_continued_last_line_is_not_continued_by_ours() -> None:
    after = slurm_conf.with_plugin(HEAD + "NodeName=a1 \\", "slurm.conf")
    assert "\\\n\nJobSubmitPlugins=lua\n" in after


def test_a_line_changed_since_is_left_to_the_admin() -> None:
    assert slurm_conf.without_plugin("JobSubmitPlugins=lua,new\n", "JobSubmitPlugins=a\n") is None
    assert slurm_conf.without_plugin("JobSubmitPlugins=a,lua,new\n", "") is None


@given(added=st.text(alphabet="abcN=# \n", max_size=40))
def test_lines_added_since_are_kept_when_ours_goes(added: str) -> None:
    assume(PARAMETER not in added)
    text = f"{HEAD}JobSubmitPlugins=all_partitions\n{TAIL}"
    after = slurm_conf.with_plugin(text, "slurm.conf")
    assert slurm_conf.without_plugin(after + added, text) == text + added


def test_an_included_file_that_sets_the_parameter_is_found(tmp_path: Path) -> None:
    (tmp_path / "site.conf").write_text("# ours\nJobSubmitPlugins=defaults\n")
    text = "Include nodes.conf\nInclude site.conf\n"
    found = slurm_conf.included_setting(tmp_path / "slurm.conf", text)
    assert found is not None
    assert found[0] == tmp_path / "site.conf"
    assert (found[1].line, found[1].plugins) == (2, ("defaults",))


def _other_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not settings(line, PARAMETER)]
