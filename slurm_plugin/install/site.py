"""The Slurm that is here: slurmctld is asked, else slurm.conf is read."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from . import disk, slurm_conf
from .options import Options
from .processes import CommandLine, SystemUser

USUAL_CONFS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
CONTROLLER_TIMEOUT_S = 60.0
PLUGIN_FILE = "job_submit_lua.so"
USUAL_PLUGIN_DIRS = (
    "usr/lib/*/slurm-wlm",
    "usr/lib/*/slurm",
    "usr/lib64/slurm",
    "usr/lib/slurm",
    "usr/local/lib/slurm",
    "opt/slurm/lib*/slurm",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSite:
    """One cluster as its controller host sees it.

    ``conf`` is slurm.conf on disk. ``running`` is what slurmctld has loaded as JobSubmitPlugins,
    None where it did not answer. ``plugin`` is job_submit_lua.so. ``user`` is None where the
    SlurmUser is no user of this machine, which only an installation below a root allows.
    ``commands`` is the directory of Slurm's commands, None to leave it to PATH.
    """

    conf: Path
    version: str = ""
    user: SystemUser | None = None
    plugin: Path | None = None
    running: tuple[str, ...] | None = None
    commands: Path | None = None

    def command(self, name: str, *arguments: str) -> CommandLine:
        """A command of Slurm, for this cluster."""
        path = str(self.commands / name) if self.commands else name
        return CommandLine((path, *arguments), environment={"SLURM_CONF": str(self.conf)})


def find_site(options: Options) -> SlurmSite:
    """The Slurm of this machine, or the one below ``options.root``; raises InstallError."""
    commands = _commands(options)
    shown = _shown_config(options, commands)
    conf = _conf(options, shown)
    content = disk.read(conf)
    if content is None:
        raise InstallError(f"there is no {conf}: name it with --slurm-conf")
    text = content.decode(errors="surrogateescape")
    user = shown.get("SlurmUser", "").partition("(")[0] or slurm_conf.value(text, "SlurmUser")
    plugins = shown.get("JobSubmitPlugins")
    return SlurmSite(
        conf=conf,
        version=shown.get("SLURM_VERSION", ""),
        user=_user(user or "root", options),
        plugin=_plugin(options, shown.get("PluginDir") or slurm_conf.value(text, "PluginDir")),
        running=None if plugins is None else slurm_conf.plugin_names(plugins),
        commands=commands,
    )


def wait_for_controller(site: SlurmSite) -> None:
    """Return once slurmctld answers after a change; raises InstallError with what it said last."""
    until = time.monotonic() + CONTROLLER_TIMEOUT_S
    while True:
        try:
            reply = site.command("scontrol", "ping").run()
        except InstallError as error:
            reply = str(error)
        if " is UP" in reply:
            return
        if time.monotonic() > until:
            raise InstallError(f"slurmctld does not answer after the change: {reply.strip()}")
        time.sleep(0.5)


def _shown_config(options: Options, commands: Path | None) -> Mapping[str, str]:
    """What slurmctld says of itself; empty where it does not answer or is not to be asked."""
    if not options.live:
        return {}
    scontrol = str(commands / "scontrol") if commands else "scontrol"
    conf = {"SLURM_CONF": str(options.slurm_conf)} if options.slurm_conf else {}
    try:
        text = CommandLine((scontrol, "show", "config"), environment=conf).run()
    except InstallError:
        return {}
    return dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.M))


def _conf(options: Options, shown: Mapping[str, str]) -> Path:
    if options.slurm_conf is not None:
        return options.on_disk(options.slurm_conf)
    named = shown.get("SLURM_CONF") or os.environ.get("SLURM_CONF")
    if options.live and named:
        return Path(named)
    usual = [options.on_disk(Path(name)) for name in USUAL_CONFS]
    found = next((path for path in usual if path.exists()), None)
    if found is None:
        raise InstallError(
            "slurm.conf is not found: slurmctld does not answer and it is in none of "
            f"{', '.join(map(str, usual))}; name it with --slurm-conf"
        )
    return found


def _commands(options: Options) -> Path | None:
    if options.slurm_bin is None:
        found = shutil.which("scontrol")
        return Path(found).parent if found else None
    if not (options.slurm_bin / "scontrol").exists():
        raise InstallError(f"--slurm-bin={options.slurm_bin}: there is no scontrol in it")
    return options.slurm_bin


def _user(name: str, options: Options) -> SystemUser | None:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if options.live:
            raise InstallError(f"SlurmUser={name} is no user of this machine") from None
        return None
    return SystemUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _plugin(options: Options, stated: str | None) -> Path | None:
    named = [options.on_disk(Path(name)) for name in (stated or "").split(":") if name]
    root = options.root or Path("/")
    usual = (path for pattern in USUAL_PLUGIN_DIRS for path in sorted(root.glob(pattern)))
    found = (place / PLUGIN_FILE for place in (*named, *usual))
    return next((path for path in found if path.exists()), None)
