"""The plan of an uninstallation: slurm.conf first, the script it names only after that.

A file that somebody changed since is never overwritten. Where only our line or our block is to
go, the rest of the file is kept as it is now; else the file stays and the admin is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import InstallError
from . import disk, hook, slurm_conf, systemd
from .options import Options
from .records import FileRecord, Records
from .site import Site, find_site
from .slurm_conf import PARAMETER, PLUGIN
from .slurm_conf_plan import controller, reload
from .steps import Command, Kind, Plan, Step, WriteFile, digest


def plan_removal(options: Options, site: Site | None, records: Records, *, purge: bool) -> Plan:
    """Everything that takes the installation back; ``site`` is None where Slurm is gone."""
    return _Removal(options, site, records, purge).plan()


class _Removal:
    """Collects steps and notes in order; later files depend on what became of earlier ones."""

    def __init__(self, options: Options, site: Site | None, records: Records, purge: bool) -> None:
        self._options, self._site, self._records, self._purge = options, site, records, purge
        self._steps: list[Step] = []
        self._notes: list[str] = []

    def plan(self) -> Plan:
        """The steps in the safe order."""
        lua_stays = self._slurm_conf()
        script_calls_us = self._script(lua_stays)
        self._modules(script_calls_us)
        self._unit()
        self._policy()
        return Plan(tuple(self._steps), tuple(self._notes))

    def _of(self, kind: Kind) -> Iterator[tuple[FileRecord, bytes]]:
        """The recorded files of a kind that are still there, with what they hold now."""
        for record in self._records.files:
            if record.kind is kind:
                content = disk.read(record.path)
                if content is not None:
                    yield record, content

    def _slurm_conf(self) -> bool:
        """Take our line out; True where slurm.conf names the Lua plugin all the same."""
        for record, now in self._of(Kind.SLURM_CONF):
            after = _restored_conf(record, now)
            if after is None:
                self._notes.append(
                    f"{record.path} was changed since, also in its line {PARAMETER}: take "
                    f"{PLUGIN} out of it by hand, run scontrol reconfigure, then uninstall again"
                )
                return True
            self._change(record, now, after, then=self._reload())
            if self._site is not None and self._reload() is not None:
                self._steps.append(controller(self._site))
            return _names_lua(record.path, after)
        conf = disk.read(self._site.conf) if self._site else None
        return self._site is None or (conf is not None and _names_lua(self._site.conf, conf))

    def _reload(self) -> Command | None:
        site = self._site
        live = self._options.live and self._options.reconfigure
        return reload(site) if site is not None and site.running is not None and live else None

    def _script(self, lua_stays: bool) -> bool:
        """Take our script or block out; True where what stays calls our module."""
        for record, now in self._of(Kind.SCRIPT):
            if digest(now) == record.after and record.backup is not None:
                self._change(record, now, _backup(record))
                return False
            if digest(now) == record.after and not lua_stays:
                self._change(record, now, None)
                return False
            text = now.decode(errors="surrogateescape")
            if hook.has_block(text):
                kept = hook.without_block(text)
                self._change(record, now, kept.encode(errors="surrogateescape"))
                return hook.mentions_us(kept)
            why = "slurm.conf names lua" if digest(now) == record.after else "it was changed since"
            self._notes.append(
                f"{record.path} stays, for {why}: slurmctld does not start without it while "
                f"{PARAMETER} names lua"
            )
            return True
        script = self._site.conf.parent / hook.SCRIPT if self._site else None
        content = disk.read(script) if script else None
        return content is not None and hook.mentions_us(content.decode(errors="surrogateescape"))

    def _modules(self, called: bool) -> None:
        for record, now in self._of(Kind.MODULE):
            if called:
                self._notes.append(f"{record.path} stays: job_submit.lua still calls it")
            elif digest(now) != record.after:
                self._notes.append(f"{record.path} stays: it was changed since; delete it by hand")
            else:
                self._change(record, now, _backup(record))

    def _unit(self) -> None:
        for record, now in self._of(Kind.UNIT):
            live = self._options.live and self._options.systemd
            if live:
                self._steps.append(systemd.STOP)
            if digest(now) != record.after:
                self._notes.append(f"{record.path} stays: it was changed since; delete it by hand")
            else:
                self._change(record, now, _backup(record), then=systemd.RELOAD if live else None)

    def _policy(self) -> None:
        for record, now in self._of(Kind.POLICY):
            if self._purge:
                self._change(record, now, None)
            else:
                self._notes.append(f"{record.path} stays; uninstall --purge removes it")

    def _change(
        self, record: FileRecord, now: bytes, after: bytes | None, then: Command | None = None
    ) -> None:
        self._steps.append(
            WriteFile(
                path=record.path,
                kind=record.kind,
                before=now,
                after=after,
                then=then,
                restores=True,
            )
        )


def leftovers(options: Options) -> tuple[Path, ...]:
    """What ``--purge`` deletes besides the recorded files: the fitted predictors."""
    home = options.on_disk(options.home_path)
    return (home,) if (home / "models").is_dir() else ()


def _restored_conf(record: FileRecord, now: bytes) -> bytes | None:
    original = _backup(record)
    if digest(now) == record.after:
        return original if original is not None else now
    text = slurm_conf.without_plugin(_text(now), None if original is None else _text(original))
    if text is None and not _names_lua(record.path, now):
        return now
    return None if text is None else text.encode(errors="surrogateescape")


def _backup(record: FileRecord) -> bytes | None:
    """What the file held before us; raises InstallError where our copy is gone or damaged."""
    if record.backup is None:
        return None
    content = disk.read(record.backup)
    if content is None or digest(content) != record.before:
        raise InstallError(f"{record.backup}, the former {record.path}, is gone or damaged")
    return content


def _names_lua(path: Path, conf: bytes) -> bool:
    text = _text(conf)
    included = slurm_conf.included_setting(path, text)
    found = slurm_conf.settings(text, PARAMETER)
    settings = [*found[-1:], *([included[1]] if included else [])]
    return any(PLUGIN in setting.plugins for setting in settings)


def _text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def site_of(options: Options, records: Records) -> Site | None:
    """The Slurm that was installed into, None where it cannot be found any more."""
    recorded = [r.path for r in records.files if r.kind is Kind.SLURM_CONF]
    named = options.in_system(recorded[0]) if recorded else None
    try:
        return find_site(replace(options, slurm_conf=options.slurm_conf or named))
    except InstallError:
        return None
