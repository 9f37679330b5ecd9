"""The Slurm that is here: slurmctld is asked, else slurm.conf is read."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config import DEFAULT_PATH
from ..errors import InstallError

HOME = Path("/var/lib/precision-time")
PROGRAM = "precision-time"
PARAMETER = "JobSubmitPlugins"
PLUGIN = "lua"
LINE = f"{PARAMETER}={PLUGIN}"
_SETTING = re.compile(rf'^[ \t]*{PARAMETER}[ \t]*=[ \t]*("[^"\n]*"|[^\s"#]*)', re.I | re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of ``install``, ``check`` and ``uninstall``.

    ``root`` is a directory that stands for ``/``, as for building a package: files go below it,
    and no command runs. ``config`` is the policy file, ``home`` the directory of predictors of
    one's own, ``slurm_bin`` that of scontrol and sbatch.
    """

    root: Path | None = None
    slurm_conf: Path | None = None
    slurm_bin: Path | None = None
    lua_library: Path | None = None
    config: Path = DEFAULT_PATH
    home: Path = HOME
    systemd: bool = True
    reconfigure: bool = True

    @property
    def live(self) -> bool:
        """True where commands run on this machine."""
        return self.root is None

    def on_disk(self, path: Path) -> Path:
        """Where a path of the running system lies for this installation."""
        return path if self.root is None else self.root / path.relative_to("/")

    def in_system(self, path: Path) -> Path:
        """The path the running system has for a file on disk."""
        return path if self.root is None else Path("/") / path.relative_to(self.root)


def program() -> Path:
    """The ``precision-time`` of this Python environment; raises InstallError."""
    beside = Path(sys.executable).parent / PROGRAM
    found = beside if beside.exists() else Path(shutil.which(PROGRAM) or beside)
    if not found.exists():
        raise InstallError(f"{beside} is missing: install the package precision-time with pip")
    return found.absolute()


_FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc", "/opt/slurm/etc")
USUAL_CONFS = tuple(f"{folder}/slurm.conf" for folder in _FOLDERS)
CONTROLLER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command; ``user`` is None for the user who installs."""

    argv: tuple[str, ...]
    user: pwd.struct_passwd | None = None
    environment: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 60.0

    def __str__(self) -> str:
        """The line a person would type."""
        words = [f"{name}={shlex.quote(text)}" for name, text in self.environment]
        line = " ".join([*words, shlex.join(self.argv)])
        return f"{line}   # as {self.user.pw_name}" if self.user else line

    def run(self) -> str:
        """What it writes to stdout; raises InstallError with its error."""
        done = self.completed()
        if done.returncode != 0:
            printed = " ".join((done.stderr.strip() or done.stdout.strip())[-400:].split())
            line = " ".join(self.argv[:4])
            raise InstallError(f"{line} ended with {done.returncode}: {printed or 'no message'}")
        return done.stdout

    def completed(self) -> subprocess.CompletedProcess[str]:
        """What came of it, whatever its exit status; raises InstallError where it cannot run."""
        other = None if self.user is None or self.user.pw_uid == os.geteuid() else self.user
        if other is not None and os.geteuid() != 0:
            raise InstallError(f"only root can run commands as {other.pw_name}: run this as root")
        try:
            return subprocess.run(
                self.argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                check=False,
                env={**os.environ, **dict(self.environment)},
                stdin=subprocess.DEVNULL,
                user=other.pw_uid if other else None,
                group=other.pw_gid if other else None,
                extra_groups=[] if other else None,
                cwd="/" if other else None,
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"{self.argv[0]} did not end within {self.timeout_s:g} s") from None
        except OSError as error:
            raise InstallError(f"{self.argv[0]} cannot be run: {error.strerror}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSite:
    """One cluster as its controller host sees it.

    ``conf`` is slurm.conf on disk and ``text`` what it holds. ``running`` is what slurmctld has
    loaded as JobSubmitPlugins, None where it did not answer. ``plugin_dir`` is where its plugins
    lie, as far as it is known. ``user`` is None where the SlurmUser is no user of this machine,
    which only an installation below a root allows.
    """

    conf: Path
    text: str
    version: str = ""
    user: pwd.struct_passwd | None = None
    plugin_dir: str | None = None
    running: tuple[str, ...] | None = None
    commands: Path | None = None

    def command(self, name: str, *arguments: str) -> CommandLine:
        """A command of Slurm, for this cluster."""
        path = str(self.commands / name) if self.commands else name
        return CommandLine((path, *arguments), environment=(("SLURM_CONF", str(self.conf)),))

    def wait_for_controller(self) -> None:
        """Return once slurmctld answers; raises InstallError with what it said last."""
        until = time.monotonic() + CONTROLLER_TIMEOUT_S
        while True:
            try:
                reply = self.command("scontrol", "ping").run()
            except InstallError as error:
                reply = str(error)
            if " is UP" in reply:
                return
            if time.monotonic() > until:
                raise InstallError(f"slurmctld does not answer after the change: {reply.strip()}")
            time.sleep(0.5)


def find_site(options: Options) -> SlurmSite:
    """The Slurm of this machine, or the one below ``options.root``; raises InstallError."""
    shown = _shown_config(options) if options.live else {}
    conf = _conf(options, shown)
    try:
        text = conf.read_text(errors="surrogateescape")
    except OSError as error:
        raise InstallError(
            f"{conf} cannot be read ({error.strerror}): name it with --slurm-conf"
        ) from None
    name = shown.get("SlurmUser", "").partition("(")[0] or value(text, "SlurmUser") or "root"
    user = None
    try:
        user = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if options.live:
            raise InstallError(f"SlurmUser={name} is no user of this machine") from None
    running = shown.get(PARAMETER)
    return SlurmSite(
        conf=conf,
        text=text,
        version=shown.get("SLURM_VERSION", ""),
        user=user,
        plugin_dir=shown.get("PluginDir") or value(text, "PluginDir"),
        running=None if running is None else plugin_names(running),
        commands=options.slurm_bin,
    )


def _shown_config(options: Options) -> Mapping[str, str]:
    """What slurmctld says of itself; empty where it does not answer."""
    scontrol = str(options.slurm_bin / "scontrol") if options.slurm_bin else "scontrol"
    if shutil.which(scontrol) is None:
        raise InstallError(f"there is no {scontrol}: name its directory with --slurm-bin")
    conf = (("SLURM_CONF", str(options.slurm_conf)),) if options.slurm_conf else ()
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
    for path in usual:
        if path.exists():
            return path
    raise InstallError(
        "slurm.conf is not found: slurmctld does not answer and it is in none of "
        f"{', '.join(map(str, usual))}; name it with --slurm-conf"
    )


def plugin_names(value: str) -> tuple[str, ...]:
    """The names of a list of job submit plugins, without ``job_submit/``."""
    names = (name.strip().removeprefix("job_submit/") for name in value.strip('"').split(","))
    return tuple(name for name in names if name and name != "(null)")


def plugins(text: str) -> tuple[str, ...]:
    """The job submit plugins that a slurm.conf names."""
    found = _SETTING.findall(text)
    return plugin_names(found[-1]) if found else ()


def with_lua(text: str, origin: str) -> str:
    """The text with ``lua`` among the job submit plugins; only that line changes.

    Raises InstallError where the parameter is set more than once.
    """
    found = list(_SETTING.finditer(text))
    if PLUGIN in plugins(text):
        return text
    if len(found) > 1:
        raise InstallError(f"{origin}: {PARAMETER} is set {len(found)} times: keep one")
    if found:
        names = ",".join((*plugin_names(found[0][1]), PLUGIN))
        return text[: found[0].start(1)] + names + text[found[0].end(1) :]
    # A backslash at the very end would draw our line into the one before.
    ended = re.sub(r"([^\n])\Z", r"\1\n", text)
    return ended + ("\n" if ended.endswith("\\\n") else "") + f"{LINE}\n"


def without_lua(text: str) -> str:
    """The text without ``lua`` among the job submit plugins; a line left without any goes."""
    for match in reversed(list(_SETTING.finditer(text))):
        left = tuple(name for name in plugin_names(match[1]) if name != PLUGIN)
        if left:
            text = text[: match.start(1)] + ",".join(left) + text[match.end(1) :]
        elif PLUGIN in plugin_names(match[1]):
            end = text.find("\n", match.end())
            text = text[: match.start()] + (text[end + 1 :] if end >= 0 else "")
    return text


def value(text: str, parameter: str) -> str | None:
    """What a file sets a parameter to, None where it does not."""
    found = re.findall(rf"^[ \t]*{parameter}[ \t]*=[ \t]*(\S+)", text, re.I | re.M)
    return found[-1] if found else None
