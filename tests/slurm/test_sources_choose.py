"""Which way Slurm is read, said with the reason; a part that fails leaves the others."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

import pytest
import replay

from slurm_plugin.cluster import WallLimits
from slurm_plugin.config import Slurm
from slurm_plugin.errors import SourceError
from slurm_plugin.sources.choose import open_source
from slurm_plugin.sources.commands import Commands
from slurm_plugin.sources.text import SlurmSource, take

needs_no_pyslurm = pytest.mark.skipif(
    importlib.util.find_spec("pyslurm") is not None, reason="pyslurm is installed here"
)


def policy(folder: Path, version: str = "2205", **settings: str) -> Slurm:
    return Slurm(bin_dir=replay.commands(folder, replay.PAYLOADS / version), **settings)  # type: ignore[arg-type]


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")


def installed_pyslurm(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: str
) -> None:
    """A package of that name and version in front of all others, for children too."""
    info = folder / f"pyslurm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyslurm\nVersion: {version}\n")
    (folder / "pyslurm.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delitem(sys.modules, "pyslurm", raising=False)


@needs_no_pyslurm
def test_auto_takes_text_and_says_why_not_pyslurm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert open_source(policy(tmp_path)).name == "text"
    assert caplog.messages == ["reading Slurm 22.05.8 with text: pyslurm is not installed"]


def test_json_of_an_older_policy_counts_as_text(tmp_path: Path) -> None:
    assert open_source(policy(tmp_path, source="json")).name == "text"


def test_a_pyslurm_of_another_version_is_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "bin").mkdir()
    installed_pyslurm(tmp_path / "lib", monkeypatch, "25.11.2", "raise SystemExit('loaded')")
    assert open_source(policy(tmp_path / "bin", "2605")).name == "text"
    assert caplog.messages == [
        "reading Slurm 26.05.3 with text: "
        "pyslurm 25.11.2 is built for Slurm 25.11, this cluster runs 26.05"
    ]


def test_a_pyslurm_that_ends_its_process_does_not_end_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    fatal = "import os, sys\nprint('fatal: failed to initialize auth plugin', file=sys.stderr)\n"
    installed_pyslurm(
        tmp_path / "lib", monkeypatch, "25.11.2", f"{fatal}sys.stderr.flush()\nos._exit(1)\n"
    )
    with pytest.raises(SourceError, match="pyslurm does not work here: fatal: failed to init"):
        open_source(policy(tmp_path / "bin", "2511", source="pyslurm"))


@needs_no_pyslurm
def test_a_named_source_that_does_not_work_says_why(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^pyslurm is not installed$"):
        open_source(policy(tmp_path, source="pyslurm"))


def test_a_named_source_is_taken_though_another_would_be_first(tmp_path: Path) -> None:
    assert open_source(policy(tmp_path, source="text")).name == "text"


def test_a_slurmctld_that_is_down_is_a_source_error(tmp_path: Path) -> None:
    settings = policy(tmp_path)
    program(tmp_path, "scontrol", "echo 'slurm_load_ctl_conf error: no answer' >&2; exit 1")
    with pytest.raises(SourceError, match=r"scontrol show config failed .* no answer"):
        open_source(settings)


def test_a_failing_slurmdbd_leaves_the_rest_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_source(policy(tmp_path, source="text"))
    program(tmp_path, "sacctmgr", "echo 'sacctmgr: error: Connection refused' >&2; exit 1")
    views = [take(source), take(source)]
    assert [view.walls for view in views] == [WallLimits(), WallLimits()]
    assert all(len(view.nodes) == 7 and view.queue and view.partitions for view in views)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "no wall limits from Slurm: sacctmgr" in caplog.text
    assert "Connection refused" in caplog.text


def test_a_slurmdbd_that_is_back_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_source(policy(tmp_path, source="text"))
    program(tmp_path, "sacctmgr", "exit 1")
    take(source)
    replay.commands(tmp_path, replay.PAYLOADS / "2205")
    caplog.clear()
    caplog.set_level(logging.INFO)
    assert take(source).walls.qos == {"long": 4320}
    take(source)
    assert caplog.messages == ["wall limits can be read from Slurm again"]


def test_without_accounting_there_are_no_wall_limits(tmp_path: Path) -> None:
    commands = Commands(policy(tmp_path).bin_dir)
    program(
        tmp_path,
        "sacctmgr",
        "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1",
    )
    assert SlurmSource(commands).wall_limits() == WallLimits()


@pytest.mark.parametrize("broken", ["nodes.txt", "partitions.txt"])
def test_without_nodes_or_partitions_there_is_no_view(tmp_path: Path, broken: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "payloads").mkdir()
    for path in (replay.PAYLOADS / "2511").iterdir():
        if path.name != broken:
            (tmp_path / "payloads" / path.name).write_bytes(path.read_bytes())
    commands = Commands(replay.commands(tmp_path / "bin", tmp_path / "payloads"))
    with pytest.raises(SourceError, match="scontrol -a show"):
        take(SlurmSource(commands))
