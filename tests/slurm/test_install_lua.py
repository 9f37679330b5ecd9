"""The Lua of slurmctld: it loads what is shipped, and a missing luasocket is named."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from install_site import LIBRARIES
from install_site import lua_library as shared_library

from slurm_plugin.config import SlurmPolicy
from slurm_plugin.errors import InstallError
from slurm_plugin.install import checks, files
from slurm_plugin.install.checks import library_of, require_luasocket
from slurm_plugin.install.site import CommandLine, Options, SlurmSite

SITE = SlurmSite(conf=Path("/etc/slurm/slurm.conf"), text="", version="22.05.8")


@pytest.mark.parametrize("version", LIBRARIES)
def test_luasocket_is_found_by_the_shared_library(version: str) -> None:
    require_luasocket(Options(lua_library=shared_library(version)), SITE)


def test_missing_luasocket_names_the_package_and_what_happens_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = subprocess.CompletedProcess((), 0, "module 'socket.unix' not found:\n\tno file\n", "")
    monkeypatch.setattr(CommandLine, "completed", lambda self: found)
    with pytest.raises(InstallError, match=r"every job passes unchanged.*Lua 5\.4.*lua-socket"):
        require_luasocket(Options(lua_library=Path("/lib/liblua5.4.so.0")), SITE)


def test_a_library_that_is_no_lua_is_refused(tmp_path: Path) -> None:
    (tmp_path / "liblua.so").write_bytes(b"not a library")
    with pytest.raises(InstallError, match=r"invalid ELF header|file too short"):
        require_luasocket(Options(lua_library=tmp_path / "liblua.so"), SITE)


def test_slurm_without_lua_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.install.checks.USUAL_PLUGIN_DIRS", ())
    with pytest.raises(InstallError, match=r"22\.05\.8 has no Lua plugin.*slurm-wlm-basic-plugins"):
        library_of(SITE, Options())


def test_one_late_answer_to_sbatch_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host the first answer after a start may take more than the hook waits."""
    said = ["sbatch: Job 1 to start", "sbatch: precision-time: resnet50: 2 h"]
    monkeypatch.setattr(checks, "ASKED_AGAIN_S", 0.0)
    monkeypatch.setattr(
        SlurmSite,
        "command",
        lambda *_: SimpleNamespace(completed=lambda: SimpleNamespace(stderr=said.pop(0))),
    )
    assert checks._submitted(SITE, SlurmPolicy()) == "resnet50: 2 h"
    said += ["sbatch: Job 2 to start"] * 3
    with pytest.raises(InstallError, match="Job 2 to start"):
        checks._submitted(SITE, SlurmPolicy())


def test_a_socket_elsewhere_is_named_in_the_script_which_is_still_ours() -> None:
    script = files.script(Path('/srv/p"t.sock'))
    assert script.count('\nif ok then pt.configure({ socket = "/srv/p\\"t.sock" }) end\n') == 1
    assert files.socket_of(script) == Path('/srv/p"t.sock')
    assert files.is_ours(script)
    assert not files.is_ours(script + "-- mine now\n")
