"""Installing below a root: what is written, what is refused, and that uninstalling undoes it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from install_site import SITE_SCRIPT, SLURM_CONF, FakeRoot, fake_root, lua_library

from slurm_plugin.errors import InstallError
from slurm_plugin.install import hook

WITH_LUA = SLURM_CONF + "JobSubmitPlugins=lua\n"


@pytest.fixture
def tree(tmp_path: Path) -> FakeRoot:
    """A machine with Slurm and without us."""
    return fake_root(tmp_path / "root", lua_library("5.1"))


def test_everything_is_in_its_place(tree: FakeRoot) -> None:
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert tree.conf.read_text() == SLURM_CONF + "JobSubmitPlugins=lua\n"
    assert tree.script.read_text() == hook.shipped()["job_submit.lua"]
    for name, text in hook.modules().items():
        assert (tree.etc / name).read_text() == text
    assert tree.policy.exists()
    assert "User=root" in tree.unit.read_text()
    assert "SLURM_CONF=/etc/slurm/slurm.conf\n" in tree.unit.read_text()


def test_a_dry_run_shows_each_change_and_makes_none(tree: FakeRoot) -> None:
    before = tree.files()
    shown = tree.install("--dry-run").output
    assert tree.files() == before
    assert "+JobSubmitPlugins=lua" in shown
    assert str(tree.script) in shown
    assert str(tree.unit) in shown


def test_installing_twice_changes_nothing_and_says_so(tree: FakeRoot) -> None:
    tree.install()
    before = tree.files()
    stamps = {path: path.stat().st_mtime for path in before}
    done = tree.install()
    assert "nothing to change" in done.output
    assert tree.files() == before
    assert {path: path.stat().st_mtime for path in before} == stamps


def test_uninstalling_restores_every_byte_but_the_policy(tree: FakeRoot) -> None:
    before = tree.files()
    tree.install()
    done = tree.uninstall()
    assert done.exit_code == 0, done.output
    left = {path for path in tree.files() if "var/lib" not in str(path)}
    assert left == {*before, tree.policy}
    assert tree.conf.read_text() == SLURM_CONF
    tree.uninstall("--purge")
    assert tree.files() == before


def test_a_new_script_is_dated_after_any_load_of_this_second(tree: FakeRoot) -> None:
    started = int(time.time())
    tree.install()
    assert tree.script.stat().st_mtime > started


def test_every_version_of_a_file_is_dated_after_the_one_before(tmp_path: Path) -> None:
    """Slurm compares whole seconds, and an installation may be taken back within one."""
    from slurm_plugin.install import disk

    stamps = []
    for content in (b"1", b"2", b"3"):
        disk.put(tmp_path / "job_submit.lua", content)
        stamps.append(int((tmp_path / "job_submit.lua").stat().st_mtime))
    assert stamps == sorted(set(stamps))


def test_a_changed_module_also_touches_the_script_that_slurmctld_watches(tree: FakeRoot) -> None:
    tree.install()
    module = tree.etc / "precision_time.lua"
    module.write_text(module.read_text() + "-- of an older release\n")
    old = time.time() - 1000
    import os

    os.utime(tree.script, (old, old))
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert module.read_text() == hook.shipped()["precision_time.lua"]
    assert tree.script.stat().st_mtime > old + 500


def test_a_site_script_stays_as_it_is_and_the_lines_to_add_are_shown(tree: FakeRoot) -> None:
    tree.conf.write_text(WITH_LUA)
    tree.script.write_text(SITE_SCRIPT)
    done = tree.install()
    assert done.exit_code == 0, done.output
    assert tree.script.read_text() == SITE_SCRIPT
    assert "pt.submit(job_desc, part_list, submit_uid)" in done.output
    assert (tree.etc / "precision_time.lua").exists()


def test_chaining_keeps_the_site_script_and_uninstalling_gives_it_back(tree: FakeRoot) -> None:
    tree.conf.write_text(WITH_LUA)
    tree.script.write_text(SITE_SCRIPT)
    done = tree.install("--chain")
    assert done.exit_code == 0, done.output
    text = tree.script.read_text()
    assert hook.without_block(text) == SITE_SCRIPT
    assert "nothing to change" in tree.install("--chain").output
    assert "nothing to change" in tree.install().output
    tree.uninstall()
    assert tree.script.read_text() == SITE_SCRIPT


def test_a_chained_script_edited_since_loses_only_our_block(tree: FakeRoot) -> None:
    tree.conf.write_text(WITH_LUA)
    tree.script.write_text(SITE_SCRIPT)
    tree.install("--chain")
    tree.script.write_text("-- edited\n" + tree.script.read_text())
    tree.uninstall()
    assert tree.script.read_text() == "-- edited\n" + SITE_SCRIPT
    assert not (tree.etc / "precision_time.lua").exists()


def test_a_dormant_site_script_is_not_woken(tree: FakeRoot) -> None:
    tree.script.write_text(SITE_SCRIPT)
    done = tree.install()
    assert tree.conf.read_text() == SLURM_CONF
    assert tree.script.read_text() == SITE_SCRIPT
    assert done.exit_code == 0
    refused = tree.install("--chain")
    assert isinstance(refused.exception, InstallError)
    assert "would start that script too" in str(refused.exception)


def test_a_script_changed_since_stays_with_its_module(tree: FakeRoot) -> None:
    tree.install()
    edited = tree.script.read_text() + "-- mine now\n"
    tree.script.write_text(edited)
    done = tree.uninstall()
    assert tree.script.read_text() == edited
    assert (tree.etc / "precision_time.lua").exists()
    assert f"{tree.script} stays" in done.output


def test_lines_added_to_slurm_conf_since_are_kept(tree: FakeRoot) -> None:
    tree.install()
    tree.conf.write_text(tree.conf.read_text() + "NodeName=new1\n")
    tree.uninstall()
    assert tree.conf.read_text() == SLURM_CONF + "NodeName=new1\n"
    assert not tree.script.exists()


def test_the_script_stays_while_slurm_conf_names_lua(tree: FakeRoot) -> None:
    """Without it slurmctld would not start any more."""
    tree.install()
    tree.conf.write_text(tree.conf.read_text().replace("=lua", "=lua,defaults"))
    done = tree.uninstall()
    assert tree.script.exists()
    assert "by hand" in done.output
    tree.conf.write_text(SLURM_CONF)
    tree.uninstall()
    assert not tree.script.exists()


def test_our_script_stays_where_slurm_conf_named_lua_before_us(tree: FakeRoot) -> None:
    tree.conf.write_text(WITH_LUA)
    tree.install()
    done = tree.uninstall()
    assert tree.script.exists()
    assert "does not start without it" in done.output


def test_a_plugin_named_in_an_included_file_is_left_to_the_admin(tree: FakeRoot) -> None:
    tree.conf.write_text(SLURM_CONF + "Include plugins.conf\n")
    (tree.etc / "plugins.conf").write_text("JobSubmitPlugins=all_partitions\n")
    before = tree.files()
    done = tree.install()
    assert isinstance(done.exception, InstallError)
    assert "JobSubmitPlugins=all_partitions,lua" in str(done.exception)
    assert tree.files() == before


def test_without_slurm_conf_the_admin_is_told_how_to_name_it(tmp_path: Path) -> None:
    tree = FakeRoot(tmp_path, lua_library("5.1"))
    done = tree.install()
    assert isinstance(done.exception, InstallError)
    assert "--slurm-conf" in str(done.exception)


def test_a_failing_step_undoes_the_steps_before_it(
    tree: FakeRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm_plugin.install import disk

    before = tree.files()
    put = disk.put

    def full_disk(path: Path, content: bytes, *, mode: int = 0o644) -> None:
        if path == tree.conf and b"lua" in content:
            raise InstallError(f"{path} cannot be written: No space left on device")
        put(path, content, mode=mode)

    monkeypatch.setattr(disk, "put", full_disk)
    done = tree.install()
    assert isinstance(done.exception, InstallError)
    assert "No space left on device; all is as it was before" in str(done.exception)
    assert tree.files() == before


def test_a_file_changed_since_it_was_read_stops_the_installation(tree: FakeRoot) -> None:
    from slurm_plugin.install.changes import Changes
    from slurm_plugin.install.records import FileKind, read_records

    records = read_records(tree.root / "records")
    changes = Changes(records, lambda _: None, dry_run=False)
    with pytest.raises(InstallError, match="was changed meanwhile"), changes:
        changes.write(tree.conf, FileKind.SLURM_CONF, b"old", b"new")
    assert tree.conf.read_text() == SLURM_CONF


def test_the_records_can_only_be_written_by_their_owner(tree: FakeRoot) -> None:
    tree.install()
    records = tree.root / "var/lib/precision-time-slurm"
    assert records.stat().st_mode & 0o077 == 0
    assert (records / "install.json").stat().st_mode & 0o077 == 0


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
    assert f"{name} is gone" in done.output
