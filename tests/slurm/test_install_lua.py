"""The Lua files are tried in the library slurmctld loads, before slurmctld sees them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from install_site import LIBRARIES, SITE_SCRIPT, fake_root
from install_site import lua_library as shared_library

from slurm_plugin.errors import InstallError
from slurm_plugin.install import hook, lua_library
from slurm_plugin.install.lua_library import library_of, try_script
from slurm_plugin.install.site import SlurmSite

DIRECTORY = Path("/etc/slurm")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Path:
    """The shared library of each Lua."""
    return shared_library(str(request.param))


MODULES = {name: text.encode() for name, text in hook.modules().items()}


def tried(library: Path, text: str, modules: Mapping[str, bytes] | None = None) -> str:
    return try_script(library, text.encode(), modules or {}).error


def test_the_shipped_script_loads(library: Path) -> None:
    assert tried(library, hook.script(hook.DEFAULT_SOCKET), MODULES) == ""


def test_luasocket_is_found_by_the_shared_library(library: Path) -> None:
    assert try_script(library, SITE_SCRIPT.encode(), {}).socket == ""


def test_a_chained_site_script_loads_and_calls_both(library: Path) -> None:
    fake = b'return {submit = function() calls[#calls + 1] = "ours" end}'
    text = hook.chained(SITE_SCRIPT, DIRECTORY, hook.DEFAULT_SOCKET)
    test = text.removesuffix("return slurm.SUCCESS\n") + (
        "assert(slurm_job_submit({}, {}, 0) == slurm.SUCCESS)\n"
        'assert(table.concat(calls, ",") == "site,ours", table.concat(calls, ","))\n'
    )
    assert tried(library, test, {"precision_time.lua": fake}) == ""
    assert tried(library, text, MODULES) == ""


def test_a_job_the_site_refuses_is_not_asked_about(library: Path) -> None:
    fake = b'return {submit = function() error("asked") end}'
    refusing = SITE_SCRIPT.replace("return slurm.SUCCESS", "return 2050", 1)
    text = hook.chained(refusing, DIRECTORY, hook.DEFAULT_SOCKET)
    test = text.removesuffix("return slurm.SUCCESS\n")
    test += "assert(slurm_job_submit({}, {}, 0) == 2050)\n"
    assert tried(library, test, {"precision_time.lua": fake}) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("function slurm_job_submit(", "expected"),
        ("error('at load')", "at load"),
        ("slurm_job_submit = 1", "slurm_job_submit is a number, not a function"),
        ("function slurm_job_submit() end", "slurm_job_modify is a nil, not a function"),
        ("require('no_such_module')", "no_such_module"),
        ("print('noise')\nerror({})", "table"),
    ],
)
def test_what_slurmctld_could_not_load_is_named(library: Path, text: str, problem: str) -> None:
    assert problem in tried(library, text)


def test_what_a_script_prints_does_not_hide_the_result(library: Path) -> None:
    assert tried(library, "print('{}')\n" + SITE_SCRIPT) == ""


def test_a_script_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lua_library, "PROBE_TIMEOUT_S", 0.5)
    with pytest.raises(InstallError, match=r"did not end within 0\.5 s"):
        tried(shared_library("5.1"), "while true do end")


def test_a_library_that_is_no_lua_is_refused(tmp_path: Path) -> None:
    (tmp_path / "liblua.so").write_bytes(b"not a library")
    with pytest.raises(InstallError, match=r"invalid ELF header|file too short"):
        tried(tmp_path / "liblua.so", SITE_SCRIPT)


def test_a_broken_module_is_refused_and_nothing_changed(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = {**hook.shipped(), "precision_time.lua": "local M = {"}
    monkeypatch.setattr(hook, "shipped", lambda: shipped)
    tree = fake_root(tmp_path / "root", library)
    before = tree.files()
    done = tree.install()
    assert isinstance(done.exception, InstallError)
    assert "precision_time.lua" in str(done.exception)
    assert tree.files() == before


def test_a_site_script_that_needs_slurmctld_is_not_chained_blindly(
    library: Path, tmp_path: Path
) -> None:
    tree = fake_root(tmp_path / "root", library)
    tree.conf.write_text(tree.conf.read_text() + "JobSubmitPlugins=lua\n")
    tree.script.write_text("require('site_module_elsewhere')\n" + SITE_SCRIPT)
    before = tree.files()
    done = tree.install("--chain")
    assert isinstance(done.exception, InstallError)
    assert "add them by hand" in str(done.exception)
    assert tree.files() == before


def test_slurm_without_lua_names_the_package(tmp_path: Path) -> None:
    site = SlurmSite(conf=tmp_path, version="22.05.8")
    with pytest.raises(InstallError, match=r"22\.05\.8 has no Lua plugin.*slurm-wlm-basic-plugins"):
        library_of(site)


def test_missing_luasocket_names_the_package_and_what_happens_without() -> None:
    advice = lua_library.socket_advice(Path("/lib/liblua5.4.so.0"), "module not found:\n\tno file")
    assert "lua-socket" in advice
    assert "Lua 5.4" in advice
    assert "every job passes unchanged" in advice


def test_a_socket_elsewhere_is_named_in_the_script() -> None:
    assert 'pt.configure({ socket = "/srv/p\\"t.sock" })' in hook.script(Path('/srv/p"t.sock'))
