"""The files of an installation: what each holds at one site, and how it is written."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from pwd import struct_passwd

from ..config import Daemon, SlurmPolicy, read_policy
from ..errors import InstallError
from .site import Options

SCRIPT = "job_submit.lua"
SERVICE = "precision-time-slurm.service"
UNIT = Path("/etc/systemd/system") / SERVICE
_REQUIRE = 'local ok, pt = pcall(require, "precision_time")'

Say = Callable[[str], None]


class Steps:
    """Says each change and makes it; with ``dry_run`` only says it. ``made`` counts them."""

    def __init__(self, say: Say, *, dry_run: bool) -> None:
        self.dry_run, self.made, self._say = dry_run, 0, say

    def do(self, line: object, action: Callable[[], object]) -> None:
        """Say it, and do it."""
        self.made += 1
        self._say(str(line))
        if not self.dry_run:
            action()

    def write(self, path: Path, content: str, why: str = "") -> bool:
        """Make a file hold this; True where it did not."""
        if read(path) == content:
            return False
        self.do(f"write {path}{why and f' ({why})'}", lambda: put(path, content))
        return True

    def remove(self, path: Path) -> None:
        """Delete a file, never a directory."""
        if path.exists() and not path.is_dir():
            self.do(f"remove {path}", path.unlink)

    def directory(self, path: Path, mode: int, owner: struct_passwd | None) -> None:
        """Make a directory; one that is there keeps its owner and mode."""

        def make() -> None:
            path.mkdir(parents=True)
            path.chmod(mode)
            if owner is not None:
                os.chown(path, owner.pw_uid, owner.pw_gid)

        if not path.exists():
            self.do(f"make {path}" + (f" for {owner.pw_name}" if owner else ""), make)


def read(path: Path) -> str | None:
    """What a file holds, None where there is none; bytes that are no UTF-8 survive ``put``."""
    try:
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror}") from None


def put(path: Path, content: str) -> None:
    """Write a file aside and rename it, so that slurmctld never sees half of one.

    An existing file keeps its owner and mode, and a symbolic link stays one. The file is dated
    after the one it replaces and a second ahead: slurmctld reloads a script only when its time
    stamp, in whole seconds, is after that of its last load. Raises InstallError.
    """
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        old = target.stat() if target.exists() else None
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", errors="surrogateescape") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, old.st_mode & 0o7777 if old else 0o644)
        if old is not None:
            os.chown(draft, old.st_uid, old.st_gid)
        ahead = max(int(time.time()), int(old.st_mtime) if old else 0) + 1
        os.utime(draft, (ahead, ahead))
        os.replace(draft, target)
    except OSError as error:
        raise InstallError(f"{path} cannot be written: {error.strerror}") from None


def modules() -> Mapping[str, str]:
    """The Lua modules of this release, by file name."""
    return {name: text for name, text in _shipped_lua().items() if name != SCRIPT}


def script(socket: Path) -> str:
    """``job_submit.lua`` for a site that has none of its own."""
    lines = "\n".join(filter(None, (_REQUIRE, _configure(socket))))
    return _shipped_lua()[SCRIPT].replace(f"\n{_REQUIRE}\n", f"\n{lines}\n")


def socket_of(script: str) -> Path:
    """The socket that a script of ours asks on."""
    named = re.search(r'^if ok then pt\.configure\(.*\bsocket = "((?:[^"\\]|\\.)+)"', script, re.M)
    return Path(re.sub(r"\\(.)", r"\1", named[1])) if named else Daemon().socket


def is_ours(text: str) -> bool:
    """True for ``script`` with any socket, unchanged but for what its head says."""
    plain = re.sub(r"^if ok then pt\.configure\(.*\n", "", text, flags=re.M)
    bodies = {re.sub(r"\A(--.*\n)+", "", each) for each in (plain, _shipped_lua()[SCRIPT])}
    return len(bodies) == 1


def mentions_us(text: str) -> bool:
    """True where a script calls our module."""
    return re.search(r"""["']precision_time["']""", text) is not None


def two_lines(directory: Path, socket: Path) -> str:
    """What an admin adds to a script of the site's own; ``directory`` holds the modules."""
    search = f"package.path = {quoted(f'{directory}/?.lua;')} .. package.path"
    configure = _configure(socket)
    return (
        "  at its top:\n"
        f"    {search}; {_REQUIRE}{'; ' + configure if configure else ''}\n"
        "  before the last return of slurm_job_submit:\n"
        "    if ok then pt.submit(job_desc, part_list, submit_uid) end"
    )


def quoted(text: str) -> str:
    """A Lua string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def policy() -> str:
    """The policy file of a new installation: every field with its default."""
    return (resources.files("slurm_plugin") / "install" / "slurm.yaml").read_text(encoding="utf-8")


def unit(
    user: str, *, slurm_conf: Path, program: Path, config: Path, home: Path, socket: Path
) -> str:
    """The systemd unit for this Python, SlurmUser and slurm.conf.

    A socket below ``/run`` gets its directory from systemd, a home below ``/var/lib`` too; others
    become writable.
    """
    environment = (f"PRECISION_TIME_HOME={home}", f"SLURM_CONF={slurm_conf}")
    start = f"{_word(program)} slurm daemon --config {_word(config)}"
    lines = {
        "User": f"User={user}",
        "ExecStart": f"ExecStart={start}",
        "Environment": "\n".join(f"Environment={_word(pair)}" for pair in environment),
        "RuntimeDirectory": f"RuntimeDirectory={socket.parent.name}",
        "StateDirectory": f"StateDirectory={home.name}",
    }
    if socket.parent.parent != Path("/run"):
        lines["RuntimeDirectory"] = f"ReadWritePaths={_word(socket.parent)}"
    if home.parent != Path("/var/lib"):
        lines["StateDirectory"] = f"ReadWritePaths={_word(home)}"
    text = (resources.files("slurm_plugin") / "systemd" / SERVICE).read_text(encoding="utf-8")
    return re.sub(r"^(\w+)=.*$", lambda match: lines.get(match[1], match[0]), text, flags=re.M)


def _shipped_lua() -> Mapping[str, str]:
    folder = resources.files("slurm_plugin") / "lua"
    found = sorted((entry for entry in folder.iterdir()), key=lambda entry: entry.name)
    return {e.name: e.read_text(encoding="utf-8") for e in found if e.name.endswith(".lua")}


def _configure(socket: Path) -> str:
    """The line that names the socket, empty where it is where the module looks anyway."""
    if socket == Daemon().socket:
        return ""
    return f"if ok then pt.configure({{ socket = {quoted(str(socket))} }}) end"


def _word(value: object) -> str:
    """A word of a unit file: ``%`` doubled, blanks in quotes."""
    text = str(value).replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return f'"{text}"' if re.search(r"\s", text) else text


def policy_at(options: Options) -> SlurmPolicy:
    """The policy as it is, or as it will be once the file is written; raises PolicyError."""
    path = options.on_disk(options.config)
    return read_policy(path) if path.exists() else SlurmPolicy()
