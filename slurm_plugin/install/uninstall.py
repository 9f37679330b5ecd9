"""Uninstalling: slurm.conf first, the script it names only after that, the daemon last.

A file that somebody changed since is never overwritten. Where only our line or our block is to
go, the rest of the file is kept as it is now; else the file stays and the admin is told.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import InstallError
from . import disk, hook, service, slurm_conf
from .changes import Changes, Say
from .options import Options
from .records import FileKind, FileRecord, Records, digest, read_records
from .site import SlurmSite, find_site, wait_for_controller
from .slurm_conf import PARAMETER, PLUGIN


def uninstall(options: Options, say: Say, *, purge: bool = False, dry_run: bool = False) -> None:
    """Take back what is recorded; ``purge`` also deletes the policy and the predictors."""
    records = read_records(options.records)
    if not records.files:
        say(f"nothing is installed: there are no records in {options.records}")
        return
    site = _site(options, records)
    notes: list[str] = []
    with Changes(records, say, dry_run=dry_run) as changes:
        removal = _Removal(options, site, changes, notes)
        lua_stays = removal.slurm_conf()
        removal.modules(called=removal.script(lua_stays))
        removal.unit()
        removal.policy(purge=purge)
    home = options.on_disk(options.home_path)
    if purge and (home / "models").is_dir():
        say(f"delete {home}")
        if not dry_run:
            shutil.rmtree(home)
    for note in notes:
        say(f"note: {note}")
    if not dry_run:
        changes.records.existing().save()
        say("done")


class _Removal:
    """One method for each kind of file."""

    def __init__(
        self, options: Options, site: SlurmSite | None, changes: Changes, notes: list[str]
    ) -> None:
        self._options, self._site, self._changes, self._notes = options, site, changes, notes

    def slurm_conf(self) -> bool:
        """Take our line out; True where slurm.conf names the Lua plugin all the same."""
        site = self._site
        for record, now in self._recorded(FileKind.SLURM_CONF):
            after = _restored_conf(record, now)
            if after is None:
                self._notes.append(
                    f"{record.path} was changed since, also in its line {PARAMETER}: take "
                    f"{PLUGIN} out of it by hand, run scontrol reconfigure, then uninstall again"
                )
                return True
            reload = None
            if site is not None and site.running is not None and self._options.reconfigure:
                reload = site.command("scontrol", "reconfigure")
            self._changes.restore(record, now, after, then=reload)
            if site is not None and reload is not None and not self._changes.dry_run:
                wait_for_controller(site)
            return slurm_conf.names_lua(record.path, disk.text(after))
        conf = None if site is None else disk.read(site.conf)
        return site is None or slurm_conf.names_lua(site.conf, disk.text(conf))

    def script(self, lua_stays: bool) -> bool:
        """Take our script or block out; True where what stays calls our module."""
        for record, now in self._recorded(FileKind.SCRIPT):
            untouched = digest(now) == record.after
            if untouched and (record.backup is not None or not lua_stays):
                self._changes.restore(record, now, record.original())
                return False
            text = disk.text(now)
            if hook.has_block(text):
                kept = hook.without_block(text)
                self._changes.restore(record, now, disk.encoded(kept))
                return hook.mentions_us(kept)
            why = "slurm.conf names lua" if untouched else "it was changed since"
            self._notes.append(
                f"{record.path} stays, for {why}: slurmctld does not start without it while "
                f"{PARAMETER} names lua"
            )
            return True
        script = None if self._site is None else disk.read(self._site.conf.parent / hook.SCRIPT)
        return hook.mentions_us(disk.text(script))

    def modules(self, *, called: bool) -> None:
        """Remove our modules, unless a script still calls them."""
        for record, now in self._recorded(FileKind.MODULE):
            if called:
                self._notes.append(f"{record.path} stays: job_submit.lua still calls it")
            else:
                self._restore_untouched(record, now)

    def unit(self) -> None:
        """Stop the daemon and remove its unit."""
        live = self._options.live and self._options.systemd
        for record, now in self._recorded(FileKind.UNIT):
            if live:
                with suppress(InstallError):  # a service that never ran cannot be stopped
                    self._changes.run(service.STOP, "stop the daemon")
            self._restore_untouched(record, now, reload_units=live)

    def policy(self, *, purge: bool) -> None:
        """Remove the policy where that is asked for."""
        for record, now in self._recorded(FileKind.POLICY):
            if purge:
                self._changes.restore(record, now, None)
            else:
                self._notes.append(f"{record.path} stays; uninstall --purge removes it")

    def _restore_untouched(
        self, record: FileRecord, now: bytes, *, reload_units: bool = False
    ) -> None:
        if digest(now) != record.after:
            self._notes.append(f"{record.path} stays: it was changed since; delete it by hand")
            return
        then = service.RELOAD if reload_units else None
        self._changes.restore(record, now, record.original(), then=then)

    def _recorded(self, kind: FileKind) -> Iterator[tuple[FileRecord, bytes]]:
        """The recorded files of a kind that are still there, with what they hold now."""
        for record in self._changes.records.files:
            content = disk.read(record.path) if record.kind is kind else None
            if content is not None:
                yield record, content


def _restored_conf(record: FileRecord, now: bytes) -> bytes | None:
    """slurm.conf without our line; None where it was changed there."""
    original = record.original()
    if digest(now) == record.after:
        return now if original is None else original
    before = None if original is None else disk.text(original)
    without = slurm_conf.without_plugin(disk.text(now), before)
    if without is None and not slurm_conf.names_lua(record.path, disk.text(now)):
        return now
    return None if without is None else disk.encoded(without)


def _site(options: Options, records: Records) -> SlurmSite | None:
    """The Slurm that was installed into, None where it cannot be found any more."""
    recorded = [r.path for r in records.files if r.kind is FileKind.SLURM_CONF]
    named: Path | None = options.in_system(recorded[0]) if recorded else None
    try:
        return find_site(replace(options, slurm_conf=options.slurm_conf or named))
    except InstallError:
        return None
