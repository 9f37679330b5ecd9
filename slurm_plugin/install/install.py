"""Installing and uninstalling, in an order that is safe at every point.

Installing: what can be looked at beforehand is; then policy, unit and daemon, which must answer;
then the Lua files, for a slurmctld that starts with ``JobSubmitPlugins=lua`` and finds no script
ends; last the line of slurm.conf and ``scontrol reconfigure``. Uninstalling goes the other way.
No file of the site's own is changed but slurm.conf, and there only that line.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ..config import SlurmPolicy
from ..daemon.reconcile import clear_order
from ..errors import InstallError, PolicyError, SourceError
from ..sources.commands import Commands
from . import files
from .checks import require_luasocket, responds
from .files import UNIT, Say, Steps, policy_at
from .site import (
    LINE,
    PARAMETER,
    PLUGIN,
    CommandLine,
    Options,
    SlurmSite,
    find_site,
    plugins,
    program,
    with_lua,
    without_lua,
)

BOOTED = Path("/run/systemd/system")  # is there where systemd runs the machine: sd_booted(3)
START_TIMEOUT_S = 200.0


def _systemctl(steps: Steps, *words: str) -> None:
    command = CommandLine(("systemctl", *words), timeout_s=START_TIMEOUT_S)
    steps.do(command, command.run)


def install(options: Options, say: Say, *, dry_run: bool = False) -> None:
    """Make what is missing or out of date; raises InstallError where it would not work."""
    if options.live and options.systemd and not BOOTED.is_dir():
        raise InstallError(
            f"this host does not run systemd (there is no {BOOTED}): run `precision-time slurm "
            f"daemon --config {options.config}` by what starts services here, and add --no-systemd"
        )
    site = find_site(options)
    socket = policy_at(options).daemon.socket
    running = site.running or ()
    if not _set_elsewhere(site):
        conf = with_lua(site.text, str(site.conf))
    elif PLUGIN in running:
        conf = site.text
    else:
        raise InstallError(
            f"slurmctld has {PARAMETER}, and {site.conf} does not set it: in the file that it "
            f"includes write {PARAMETER}={','.join([*running, PLUGIN])}, then run this again"
        )
    if options.live:
        try:
            CommandLine((str(program()), "--version"), site.user).run()
        except InstallError as error:
            who = site.user.pw_name if site.user else "this user"
            raise InstallError(
                f"{error}. The SlurmUser {who} runs the daemon: install Python and the package "
                "where every user can read them, such as /opt/precision-time"
            ) from None
        require_luasocket(options, site)
    steps = Steps(say, dry_run=dry_run)
    _daemon(steps, options, site, socket)
    if not _lua_files(steps, options, site, socket, say):
        return
    if options.live and not dry_run and not responds(socket, wait=options.systemd):
        say(
            f"note: the daemon does not answer on {socket}: start as SlurmUser "
            f"`PRECISION_TIME_HOME={options.home} precision-time slurm daemon --config "
            f"{options.config}` and run install again; until then slurm.conf stays as it is"
        )
        return
    _slurm_conf(steps, options, site, conf, named=True, say=say)
    if not options.live:
        say(
            "note: on the machine: systemctl enable --now precision-time-slurm, "
            "scontrol reconfigure"
        )
    if not steps.made:
        say("nothing to change: all is in place")
    elif not dry_run:
        say("done; `check` proves it")


def uninstall(options: Options, say: Say, *, purge: bool = False, dry_run: bool = False) -> None:
    """Take it back; ``purge`` also deletes the policy and the predictors of one's own."""
    site = find_site(options)
    steps = Steps(say, dry_run=dry_run)
    path = site.conf.parent / files.SCRIPT
    script = files.read(path)
    if script is not None and files.is_ours(script) and not _set_elsewhere(site):
        _slurm_conf(steps, options, site, without_lua(site.text), named=False, say=say)
        steps.remove(path)
        script = None
    if script is not None and files.mentions_us(script):
        say(
            f"note: {path} and the modules beside it stay, for it is not as we wrote it or "
            f"{PARAMETER} is set in a file that {site.conf} includes: take {PLUGIN} out there, or "
            "our lines out of the script, then uninstall again"
        )
    else:
        for name in files.modules():
            steps.remove(path.parent / name)
    live_unit, unit = options.live and options.systemd, options.on_disk(UNIT)
    if unit.exists():
        if live_unit:
            with suppress(InstallError):  # a service that never ran cannot be stopped
                _systemctl(steps, "disable", "--now", files.SERVICE)
        steps.remove(unit)
        if live_unit:
            _systemctl(steps, "daemon-reload")
    if options.live and not dry_run:
        # Pending jobs would stay before, or behind, all that are submitted later.
        try:
            count, held = clear_order(Commands(site.commands, conf=site.conf))
            if count:
                say(f"the order of {count} pending jobs is taken back")
            if held:
                say(f"note: held jobs keep their nice; later: scontrol update JobId={held} Nice=0")
        except SourceError as error:
            say(f"note: whether pending jobs stand where we put them is not known: {error}")
    policy, home = options.on_disk(options.config), options.on_disk(options.home)
    if purge:
        socket = options.on_disk(SlurmPolicy().daemon.socket)
        with suppress(PolicyError):  # one that cannot be read goes all the same
            socket = options.on_disk(policy_at(options).daemon.socket)
        for path in (policy, socket, socket.with_name(f"{socket.name}.lock")):
            steps.remove(path)
        if home.is_dir():
            steps.do(f"remove {home}", lambda: shutil.rmtree(home))
        for place in (policy.parent, socket.parent):
            if place.name == "precision-time" and place.is_dir() and not any(place.iterdir()):
                steps.do(f"remove {place}", place.rmdir)
    elif policy.exists():
        say(f"note: {policy} stays; uninstall --purge removes it")
    say("done" if steps.made else "nothing is installed")


def _set_elsewhere(site: SlurmSite) -> bool:
    """Whether slurmctld has plugins from a file that slurm.conf includes."""
    return bool(site.running) and not plugins(site.text)


def _daemon(steps: Steps, options: Options, site: SlurmSite, socket: Path) -> None:
    """Policy, directories and unit; the service is started, or started again where it changed."""
    policy, owner = options.on_disk(options.config), site.user if options.live else None
    if not policy.exists():
        steps.write(policy, files.policy())
    steps.directory(options.on_disk(options.home), 0o755, owner)
    if not options.systemd:
        if options.live:
            steps.directory(socket.parent, 0o750, owner)
        return
    changed = steps.write(
        options.on_disk(UNIT),
        files.unit(
            site.user.pw_name if site.user else "slurm",
            slurm_conf=options.in_system(site.conf),
            program=program(),
            config=options.config,
            home=options.home,
            socket=socket,
        ),
    )
    if not options.live:
        return
    if changed:
        _systemctl(steps, "daemon-reload")
    states = (("systemctl", s, "--quiet", files.SERVICE) for s in ("is-enabled", "is-active"))
    if any(CommandLine(words).completed().returncode for words in states):
        _systemctl(steps, "enable", "--now", files.SERVICE)
    elif changed:
        _systemctl(steps, "restart", files.SERVICE)


def _lua_files(steps: Steps, options: Options, site: SlurmSite, socket: Path, say: Say) -> bool:
    """The modules, then the script; False where the admin has to add our lines to their own."""
    directory = site.conf.parent
    changed = [steps.write(directory / name, text) for name, text in files.modules().items()]
    path = directory / files.SCRIPT
    script, written = files.read(path), False
    if script is None or script == files.script(files.socket_of(script)):
        script = files.script(socket)
        written = steps.write(path, script)
    elif not files.mentions_us(script):
        lines = files.two_lines(options.in_system(directory), socket)
        say(f"note: {path} is your own and stays as it is. Add these two lines:\n{lines}")
        say(f"note: then {LINE} in slurm.conf and scontrol reconfigure, where lua is not named yet")
        return False
    if any(changed) and not written and not steps.dry_run:
        files.put(path, script)  # slurmctld loads modules anew when the script has another date
    return True


def _slurm_conf(
    steps: Steps, options: Options, site: SlurmSite, text: str, *, named: bool, say: Say
) -> None:
    """slurm.conf as given, and slurmctld made to read it; where it cannot, both as before."""
    if text == site.text and (site.running is None or (PLUGIN in site.running) == named):
        return
    command = site.command("scontrol", "reconfigure")
    changed = steps.write(site.conf, text, f"{PARAMETER} with{'' if named else 'out'} {PLUGIN}")
    if not options.live:
        return
    if not options.reconfigure:
        say(f"note: run {command}")
    elif site.running is None:
        say("note: slurmctld does not answer: it reads slurm.conf when it starts")
    else:
        try:
            steps.do(command, command.run)
            if not steps.dry_run:
                site.wait_for_controller()
        except InstallError as error:
            if changed:
                files.put(site.conf, site.text)
                with suppress(InstallError):
                    command.run()
            raise InstallError(f"{error}; {site.conf} is as it was before") from error
