"""Installing below a root: what is written, what stays, and that uninstalling undoes it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from install_site import SITE_SCRIPT, SLURM_CONF, FakeRoot, fake_root

from slurm_plugin.errors import InstallError
from slurm_plugin.install import files

WITH_LUA = SLURM_CONF + "JobSubmitPlugins=lua\n"
CALLING = SITE_SCRIPT + '-- local ok, pt = pcall(require, "precision_time")\n'


@pytest.fixture
def tree(tmp_path: Path) -> FakeRoot:
    """A machine with Slurm and without us."""
    return fake_root(tmp_path / "root")


def test_everything_is_in_its_place(tree: FakeRoot) -> None:
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert tree.conf.read_text() == WITH_LUA
    assert files.is_ours(tree.script.read_text())
    for name, text in files.modules().items():
        assert (tree.etc / name).read_text() == text
    assert tree.policy.exists()
    assert "User=root" in tree.unit.read_text()
    assert "SLURM_CONF=/etc/slurm/slurm.conf\n" in tree.unit.read_text()


def test_a_dry_run_shows_each_change_and_makes_none(tree: FakeRoot) -> None:
    before = tree.files()
    shown = tree.install("--dry-run").output
    assert tree.files() == before
    assert f"write {tree.conf} (JobSubmitPlugins with lua)" in shown
    assert f"write {tree.script}" in shown
    assert f"write {tree.unit}" in shown
    assert "done" not in shown


def test_installing_twice_changes_nothing_and_says_so(tree: FakeRoot) -> None:
    tree.install()
    before = tree.files()
    stamps = {path: path.stat().st_mtime for path in before}
    assert "nothing to change" in tree.install().output
    assert tree.files() == before
    assert {path: path.stat().st_mtime for path in before} == stamps


def test_uninstalling_restores_every_byte_but_the_policy(tree: FakeRoot) -> None:
    before = tree.files()
    tree.install()
    shown = tree.uninstall("--dry-run").output
    assert f"remove {tree.etc / 'precision_time.lua'}" in shown
    assert tree.conf.read_text() == WITH_LUA
    done = tree.uninstall()
    assert done.exit_code == 0, done.output
    assert set(tree.files()) == {*before, tree.policy}
    assert tree.conf.read_text() == SLURM_CONF
    tree.uninstall("--purge")
    assert tree.files() == before
    assert "nothing is installed" in tree.uninstall().output


def test_a_purge_leaves_no_directory_though_the_policy_is_wrong(tree: FakeRoot) -> None:
    tree.install()
    tree.policy.write_text("no: such field\n")
    assert tree.uninstall("--purge").exit_code == 0
    assert not tree.policy.parent.exists()


def test_every_version_of_a_file_is_dated_after_the_one_before(tmp_path: Path) -> None:
    """Slurm compares whole seconds, and an installation may be taken back within one."""
    stamps = [int(time.time())]
    for content in ("1", "2", "3"):
        files.put(tmp_path / "job_submit.lua", content)
        stamps.append(int((tmp_path / "job_submit.lua").stat().st_mtime))
    assert stamps == sorted(set(stamps))


def test_a_file_keeps_its_mode_its_bytes_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "slurm.conf", tmp_path / "link"
    path.write_bytes(b"# \xff\n")
    path.chmod(0o640)
    link.symlink_to(path)
    files.put(link, (files.read(link) or "") + "x\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"# \xff\nx\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_changed_module_also_touches_the_script_that_slurmctld_watches(tree: FakeRoot) -> None:
    tree.install()
    module = tree.etc / "precision_time.lua"
    module.write_text(module.read_text() + "-- of an older release\n")
    old = time.time() - 1000
    os.utime(tree.script, (old, old))
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert module.read_text() == files.modules()["precision_time.lua"]
    assert tree.script.stat().st_mtime > old + 500


@pytest.mark.parametrize("conf", [SLURM_CONF, WITH_LUA])
def test_a_site_script_stays_as_it_is_and_the_lines_to_add_are_shown(
    tree: FakeRoot, conf: str
) -> None:
    """Without lua in slurm.conf it is dormant, and is not woken."""
    tree.conf.write_text(conf)
    tree.script.write_text(SITE_SCRIPT)
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert tree.conf.read_text() == conf
    assert tree.script.read_text() == SITE_SCRIPT
    assert "pt.submit(job_desc, part_list, submit_uid)" in done.output
    assert (tree.etc / "precision_time.lua").exists()
    tree.uninstall("--purge")
    assert tree.script.read_text() == SITE_SCRIPT
    assert tree.conf.read_text() == conf
    assert not (tree.etc / "precision_time.lua").exists()


def test_a_script_that_calls_us_is_enough_and_stays_with_its_modules(tree: FakeRoot) -> None:
    tree.script.write_text(CALLING)
    done = tree.install()
    assert "done" in done.output
    assert tree.conf.read_text() == WITH_LUA
    assert tree.check().exit_code == 0
    done = tree.uninstall()
    assert tree.script.read_text() == CALLING
    assert (tree.etc / "precision_time.lua").exists()
    assert tree.conf.read_text() == WITH_LUA, "slurmctld would not start without its script"
    assert f"{tree.script} and the modules beside it stay" in done.output


def test_lines_added_to_slurm_conf_since_are_kept(tree: FakeRoot) -> None:
    tree.install()
    tree.conf.write_text(tree.conf.read_text().replace("=lua", "=lua,defaults") + "NodeName=n\n")
    tree.uninstall()
    assert tree.conf.read_text() == SLURM_CONF + "JobSubmitPlugins=defaults\nNodeName=n\n"
    assert not tree.script.exists()


def test_without_slurm_conf_the_admin_is_told_how_to_name_it(tmp_path: Path) -> None:
    done = FakeRoot(tmp_path).install()
    assert isinstance(done.exception, InstallError)
    assert "--slurm-conf" in str(done.exception)


def test_check_finds_what_was_installed(tree: FakeRoot) -> None:
    assert tree.check().exit_code == 1
    tree.install()
    done = tree.check()
    assert done.exit_code == 0, done.output
    assert "FAILED" not in done.output


@pytest.mark.parametrize("name", ["precision_time.lua", "job_submit.lua"])
def test_check_finds_a_file_that_is_gone(tree: FakeRoot, name: str) -> None:
    tree.install()
    (tree.etc / name).unlink()
    done = tree.check()
    assert done.exit_code == 1
    assert f"{name} is missing" in done.output


def test_check_finds_a_module_of_another_release(tree: FakeRoot) -> None:
    tree.install()
    (tree.etc / "precision_time.lua").write_text("-- older\n")
    assert "precision_time.lua is of another release" in tree.check().output


def test_a_socket_that_the_policy_names_since_is_asked_after_the_next_install(
    tree: FakeRoot,
) -> None:
    """Else every job would pass unserved, and all seem to be as installed."""
    tree.install()
    tree.policy.write_text("daemon: {socket: /srv/pt.sock}\n")
    assert "asks /run/precision-time/slurm.sock, not daemon.socket" in tree.check().output
    tree.install()
    assert '{ socket = "/srv/pt.sock" }' in tree.script.read_text()
    assert tree.check().exit_code == 0

    own = tree.script.read_text().replace('pt.sock" }', 'old.sock", timeout = 0.02 }')
    tree.script.write_text(own)
    tree.install()
    assert tree.script.read_text() == own, "settings of the admin stay"
    assert "/srv/old.sock, not daemon.socket" in tree.check().output
