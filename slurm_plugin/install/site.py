"""The Slurm that is here: asked from slurmctld, else read from slurm.conf."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from . import disk, slurm_conf
from .options import Options
from .processes import run_argv
from .slurm_conf import Setting
from .steps import Account

USUAL_CONFS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
PLUGIN_FILE = "job_submit_lua.so"
USUAL_PLUGIN_DIRS = (
    "/usr/lib/*/slurm-wlm",
    "/usr/lib/*/slurm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
    "/opt/slurm/lib*/slurm",
)
CONTROLLER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One cluster as its controller host sees it.

    ``conf`` is slurm.conf on disk. ``running`` is what slurmctld has loaded as JobSubmitPlugins,
    None where it did not answer. ``plugin`` is job_submit_lua.so. ``user`` is None where the
    SlurmUser is no user of this machine, which only an installation below a root allows.
    """

    conf: Path
    version: str
    user: Account | None
    plugin: Path | None
    running: tuple[str, ...] | None
    commands: Path | None

    @property
    def environment(self) -> Mapping[str, str]:
        """What Slurm's commands need to find this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def command(self, name: str) -> str:
        """Path of a Slurm command."""
        return str(self.commands / name) if self.commands else name


def find_site(options: Options) -> Site:
    """The Slurm of this machine, or the one below ``options.root``; raises InstallError."""
    commands = _commands(options)
    shown = _show_config(options, commands)
    conf = _conf(options, shown)
    content = disk.read(conf)
    if content is None:
        raise InstallError(f"there is no {conf}: name it with --slurm-conf")
    text = content.decode(errors="surrogateescape")
    name = _shown_user(shown) or slurm_conf.value(text, "SlurmUser") or "root"
    plugin_dirs = shown.get("PluginDir") or slurm_conf.value(text, "PluginDir")
    return Site(
        conf=conf,
        version=shown.get("SLURM_VERSION") or _version(options, commands),
        user=_account(name, options),
        plugin=_plugin(options, plugin_dirs, commands),
        running=_names(shown["JobSubmitPlugins"]) if "JobSubmitPlugins" in shown else None,
        commands=commands,
    )


def running_plugins(site: Site) -> tuple[str, ...] | None:
    """The job submit plugins slurmctld has loaded now, None where it does not answer."""
    try:
        shown = parse_config(
            run_argv(
                (site.command("scontrol"), "show", "config"),
                environment=site.environment,
                timeout_s=CONTROLLER_TIMEOUT_S,
            )
        )
    except InstallError:
        return None
    return _names(shown.get("JobSubmitPlugins", ""))


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config`` as a mapping."""
    return dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.M))


def _show_config(options: Options, commands: Path | None) -> dict[str, str]:
    """What slurmctld says of itself; empty where it does not answer or is not to be asked."""
    if not options.live:
        return {}
    scontrol = str(commands / "scontrol") if commands else "scontrol"
    conf = {"SLURM_CONF": str(options.slurm_conf)} if options.slurm_conf else {}
    try:
        reply = run_argv(
            (scontrol, "show", "config"), environment=conf, timeout_s=CONTROLLER_TIMEOUT_S
        )
    except InstallError:
        return {}
    return parse_config(reply)


def _conf(options: Options, shown: Mapping[str, str]) -> Path:
    if options.slurm_conf is not None:
        return options.on_disk(options.slurm_conf)
    named = shown.get("SLURM_CONF") or os.environ.get("SLURM_CONF")
    if options.live and named:
        return Path(named)
    usual = [options.on_disk(Path(name)) for name in USUAL_CONFS]
    found = [path for path in usual if path.exists()]
    if not found:
        raise InstallError(
            "slurm.conf is not found: slurmctld does not answer and it is in none of "
            f"{', '.join(map(str, usual))}; name it with --slurm-conf"
        )
    return found[0]


def _commands(options: Options) -> Path | None:
    """The directory of Slurm's commands, None to leave it to PATH."""
    if options.slurm_bin is None:
        found = shutil.which("scontrol")
        return Path(found).parent if found else None
    if not (options.slurm_bin / "scontrol").exists():
        raise InstallError(f"--slurm-bin={options.slurm_bin}: there is no scontrol in it")
    return options.slurm_bin


def _version(options: Options, commands: Path | None) -> str:
    if not options.live or commands is None:
        return ""
    try:
        words = run_argv((str(commands / "scontrol"), "--version")).split()
    except InstallError:
        return ""
    return words[-1] if words else ""


def _shown_user(shown: Mapping[str, str]) -> str | None:
    return shown["SlurmUser"].partition("(")[0] if "SlurmUser" in shown else None


def _account(name: str, options: Options) -> Account | None:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if options.live:
            raise InstallError(f"SlurmUser={name} is no user of this machine") from None
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _plugin(options: Options, stated: str | None, commands: Path | None) -> Path | None:
    places = [Path(name) for name in (stated or "").split(":") if name]
    if commands is not None:
        prefix = commands.resolve().parent
        places += [prefix / "lib/slurm", prefix / "lib64/slurm"]
    for pattern in USUAL_PLUGIN_DIRS:
        places += sorted(Path("/").glob(pattern.removeprefix("/")))
    roots = [options.on_disk(place) for place in places]
    found = (place / PLUGIN_FILE for place in roots if (place / PLUGIN_FILE).exists())
    return next(found, None)


def _names(value: str) -> tuple[str, ...]:
    return Setting(value, 0, 0, 0).plugins
