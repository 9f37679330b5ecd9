"""The Lua that slurmctld's plugin links, and our scripts tried in that very library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from .hook import SCRIPT
from .processes import CommandLine, SystemUser
from .site import PLUGIN_FILE, SlurmSite

PROBE = Path(__file__).with_name("lua_probe.py")
PROBE_TIMEOUT_S = 20.0
_LINKED = re.compile(r"^\s*(liblua\S*) => (\S+)", re.M)
_UNSET = tuple(word for name in ("LUA_PATH", "LUA_CPATH", "LUA_INIT") for word in ("-u", name))


@dataclass(frozen=True, slots=True)
class LuaTrial:
    """What came of running a script; both texts are empty where all is well.

    ``error`` is why slurmctld could not load it, ``socket`` why luasocket is not there.
    """

    error: str
    socket: str


def library_of(site: SlurmSite) -> Path:
    """The shared Lua library the plugin links; raises InstallError naming what to install."""
    if site.plugin is None:
        raise InstallError(
            f"Slurm {site.version or 'here'} has no Lua plugin ({PLUGIN_FILE} is not in its "
            "PluginDir): on Debian and Ubuntu install slurm-wlm-basic-plugins; elsewhere Slurm "
            "must be built where the Lua development files are (lua-devel, liblua5.4-dev)"
        )
    try:
        done = subprocess.run(
            ("ldd", str(site.plugin)), capture_output=True, text=True, check=False, timeout=20
        )
    except OSError as error:
        raise InstallError(
            f"ldd cannot be run ({error.strerror}): name the Lua library that slurmctld loads "
            "with --lua-library"
        ) from None
    linked = _LINKED.search(done.stdout)
    if linked is None:
        raise InstallError(
            f"{site.plugin} links no Lua library (ldd names no liblua*.so): name the one "
            "slurmctld loads with --lua-library"
        )
    name, path = linked.groups()
    if not path.startswith("/"):
        raise InstallError(f"{site.plugin} needs {name}, which is not installed")
    return Path(path)


def try_script(
    library: Path, script: bytes, modules: Mapping[str, bytes], user: SystemUser | None = None
) -> LuaTrial:
    """Run a script with modules by file name, in a process and a directory of its own.

    Runs as ``user``, as slurmctld would. Raises InstallError where the library is no Lua.
    """
    with tempfile.TemporaryDirectory(prefix="precision-time-lua-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        for file, content in {**modules, SCRIPT: script}.items():
            (directory / file).write_bytes(content)
            (directory / file).chmod(0o644)
        asked = {
            "library": str(library),
            "script": str(directory / SCRIPT),
            "preload": {Path(file).stem: str(directory / file) for file in modules},
        }
        interpreter = str(Path(sys.executable).resolve())
        probe = CommandLine(
            ("env", *_UNSET, interpreter, "-I", "-S", str(PROBE)),
            user=user if os.geteuid() == 0 else None,
            timeout_s=PROBE_TIMEOUT_S,
        )
        reply = probe.run(given=json.dumps(asked))
    try:
        raw = json.loads(reply.splitlines()[-1])  # the script may have printed lines of its own
        return LuaTrial(error=raw["error"], socket=raw["socket"])
    except (ValueError, IndexError, KeyError):
        raise InstallError(f"{library} did not answer as Lua does: {reply[-200:]!r}") from None


def socket_advice(library: Path, problem: str) -> str:
    """What to install where a Lua has no luasocket."""
    version = re.search(r"5\.\d", library.name)
    lua = f"Lua {version[0]}" if version else "this Lua"
    return (
        f'{library.name} cannot load "socket.unix" ({problem.splitlines()[0].rstrip(":")}): '
        f"without it every job passes unchanged. Install luasocket for {lua}: on Debian and "
        "Ubuntu lua-socket, on Fedora and EPEL lua-socket, else `luarocks install luasocket`"
    )
