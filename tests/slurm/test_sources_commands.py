"""Running Slurm's commands: what fails says which command, how, and what it said."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.errors import SourceError
from slurm_plugin.sources import commands as module
from slurm_plugin.sources.commands import Commands


def program(folder: Path, script: str, name: str = "squeue") -> Commands:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Commands(folder, timeout_s=5.0)


def test_a_failure_names_the_command_its_status_and_its_first_line(tmp_path: Path) -> None:
    commands = program(tmp_path, "echo >&2; echo 'squeue: error: no controller' >&2; exit 3")
    with pytest.raises(SourceError) as failure:
        commands.text("squeue", "--json")
    assert str(failure.value) == (
        "squeue --json failed with exit status 3: squeue: error: no controller"
    )


def test_a_command_that_is_not_there_names_the_place_and_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"sacct is not in slurm.bin_dir={tmp_path}"):
        Commands(tmp_path).text("sacct")


def test_without_bin_dir_commands_come_from_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "echo here", "scontrol")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Commands().text("scontrol") == "here\n"


def test_a_slurm_conf_of_its_own_counts_over_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, 'echo "$SLURM_CONF"')
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    assert Commands(tmp_path).text("squeue") == "/etc/slurm/slurm.conf\n"
    assert Commands(tmp_path, conf=Path("/opt/slurm.conf")).text("squeue") == "/opt/slurm.conf\n"


def test_a_program_that_cannot_be_run_is_a_source_error(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/nowhere/at/all\n")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(SourceError, match="squeue cannot be run"):
        Commands(tmp_path).text("squeue")


def test_a_hanging_command_is_ended_at_its_time(tmp_path: Path) -> None:
    program(tmp_path, "echo begun; exec sleep 600")
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"squeue did not end within 0\.5 s"):
        Commands(tmp_path, timeout_s=0.5).text("squeue")
    assert time.monotonic() - began < 60


def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    commands = program(tmp_path, 'printf "<%s>" "$@"')
    assert commands.text("squeue", "a b", "$(id); *", "'") == "<a b><$(id); *><'>"


def test_settings_of_the_caller_do_not_change_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_FORMAT", "SLURM_CLUSTERS", "SACCT_FORMAT", "SINFO_FORMAT"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    lines = set(program(tmp_path, "env").text("squeue").splitlines())
    assert {"SLURM_CONF=/etc/slurm/slurm.conf", "SLURM_TIME_FORMAT=%s", "LC_ALL=C"} <= lines
    assert not [line for line in lines if line.endswith("=mine")]


def test_output_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    with pytest.raises(SourceError, match="printed more than 100000 bytes"):
        program(tmp_path, "exec cat /dev/zero").text("squeue")


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    output = program(tmp_path, "exec cat /dev/zero").stream("squeue")
    assert set(next(output)) == {0}
    output.close()


def test_much_on_stderr_does_not_block(tmp_path: Path) -> None:
    commands = program(tmp_path, "head -c 1000000 /dev/zero >&2; echo done")
    assert commands.text("squeue") == "done\n"
