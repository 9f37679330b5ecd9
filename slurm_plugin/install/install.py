"""Installing, in the order that is safe at every point.

What can be looked at beforehand is, so that what cannot work is said at once. The daemon comes
first and must answer; then the Lua files, which were tried in the very library slurmctld loads;
then slurm.conf, for a slurmctld that starts with ``JobSubmitPlugins=lua`` and finds no script
ends; last ``scontrol reconfigure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from . import disk, hook, lua_library, service, slurm_conf
from .changes import Changes, Say
from .options import Options
from .records import FileKind, Records, digest, read_records
from .site import SlurmSite, find_site, wait_for_controller


@dataclass(frozen=True, slots=True)
class SubmitScript:
    """``job_submit.lua`` as it is and as it shall be; ``after`` is None for one left alone."""

    path: Path
    before: bytes | None
    after: bytes | None


def install(options: Options, say: Say, *, dry_run: bool = False) -> None:
    """Make what is missing or out of date; raises InstallError where it would not work."""
    service.require_systemd(options)
    site = find_site(options)
    socket = service.policy_at(options).daemon.socket
    records = read_records(options.records)
    _activated(site)
    script = _submit_script(options, site, records, socket)
    notes = _tried(options, site, script)
    if options.live:
        service.require_runnable(site)
    waits = False
    with Changes(records, say, dry_run=dry_run) as changes:
        service.write_policy(changes, options)
        service.make_home(changes, options, site)
        service.start(changes, options, site, socket)
        _write_lua(changes, script)
        if script.after is None:
            notes.append(_by_hand(options.in_system(script.path), socket))
        elif service.is_ready(options, socket, say, dry_run=dry_run):
            notes += _name_plugin(changes, options, site)
        else:
            waits = True
            notes.append(
                f"the daemon does not answer on {socket}: start `precision-time slurm daemon "
                f"--config {options.policy_path}` and run install again; until then slurm.conf "
                "stays as it is"
            )
    if not options.live:
        notes.append(
            "on the machine: systemctl enable --now precision-time-slurm, scontrol reconfigure"
        )
    for note in notes:
        say(f"note: {note}")
    if not changes.made and not waits:
        say("nothing to change: all is in place")
    elif not dry_run and not waits:
        say("done; `check` proves it")


def _submit_script(
    options: Options, site: SlurmSite, records: Records, socket: Path
) -> SubmitScript:
    """Ours where there is none; a site's own only with ``--chain``, or where we chained before."""
    path = site.conf.parent / hook.SCRIPT
    before = disk.read(path)
    ours = hook.script(socket).encode()
    record = records.of(path)
    if before is None:
        return SubmitScript(path, before, ours)
    if record is not None and record.before is None and record.after == digest(before):
        return SubmitScript(path, before, ours)
    text = disk.text(before)
    if hook.mentions_us(text) and not hook.has_block(text):
        return SubmitScript(path, before, before)
    if not (options.chain or hook.has_block(text)):
        return SubmitScript(path, before, None)
    if not slurm_conf.names_lua(site.conf, disk.text(disk.read(site.conf))):
        raise InstallError(
            f"{path} is there, but slurm.conf does not use it: naming lua in JobSubmitPlugins "
            "would start that script too. Move it away, or name lua yourself, then run this again"
        )
    directory = options.in_system(path).parent
    return SubmitScript(path, before, disk.encoded(hook.chained(text, directory, socket)))


def _tried(options: Options, site: SlurmSite, script: SubmitScript) -> list[str]:
    """Run what would be live in the Lua of slurmctld; notes on it, or raises InstallError."""
    library = options.lua_library or lua_library.library_of(site)
    modules = {name: text.encode() for name, text in hook.modules().items()}
    content = script.after or hook.shipped()[hook.SCRIPT].encode()
    trial = lua_library.try_script(library, content, modules, site.user)
    if trial.error and script.before not in (None, content):
        own = lua_library.try_script(library, script.before or b"", modules, site.user)
        if own.error:
            raise InstallError(
                f"{script.path} does not run outside slurmctld ({trial.error}), so our lines "
                "cannot be tried: add them by hand, see docs/slurm.md"
            )
    if trial.error:
        raise InstallError(f"{library.name} refuses {hook.SCRIPT}: {trial.error}")
    if not trial.socket:
        return []
    advice = lua_library.socket_advice(library, trial.socket)
    if options.live:
        raise InstallError(advice)
    return [advice]


def _write_lua(changes: Changes, script: SubmitScript) -> None:
    """The modules beside the script, then the script, whose time stamp slurmctld watches."""
    made = changes.made
    for name, text in hook.modules().items():
        path = script.path.parent / name
        changes.write(path, FileKind.MODULE, disk.read(path), text.encode())
    if script.after is None:
        return
    if script.after != script.before:
        original = None if script.before is None else hook.without_block(disk.text(script.before))
        first = None if original is None else disk.encoded(original)
        changes.write(script.path, FileKind.SCRIPT, script.before, script.after, original=first)
    elif changes.made > made:
        changes.touch(script.path)


def _name_plugin(changes: Changes, options: Options, site: SlurmSite) -> list[str]:
    """The line of slurm.conf, and slurmctld made to read it; notes on what is left to the admin."""
    before, after = disk.read(site.conf), disk.encoded(_activated(site))
    loaded = site.running is not None and slurm_conf.PLUGIN in site.running
    if before == after and (loaded or site.running is None):
        return []
    command, notes = site.command("scontrol", "reconfigure"), []
    reload = command if options.reconfigure and site.running is not None else None
    if options.live and not options.reconfigure:
        notes.append(f"run {command}")
    elif options.live and site.running is None:
        notes.append("slurmctld does not answer: it will load the hook when it starts")
    if before != after:
        changes.write(site.conf, FileKind.SLURM_CONF, before, after, then=reload)
    elif reload is not None:
        changes.run(reload, "slurmctld reads slurm.conf again")
    if reload is not None and not changes.dry_run:
        wait_for_controller(site)
    return notes


def _activated(site: SlurmSite) -> str:
    return slurm_conf.activated(site.conf, disk.text(disk.read(site.conf)))


def _by_hand(path: Path, socket: Path) -> str:
    return (
        f"{path} is your own and stays as it is. Add these two lines, or use --chain:\n"
        f"{hook.two_lines(path.parent, socket)}"
    )
