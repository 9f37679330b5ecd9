"""The Lua that slurmctld's plugin links, and our scripts tried in that very library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstallError
from .processes import run_argv
from .site import PLUGIN_FILE, Site
from .steps import Account

PROBE = Path(__file__).with_name("lua_probe.py")
PROBE_TIMEOUT_S = 20.0
_LINKED = re.compile(r"^\s*(liblua\S*) => (\S+)", re.M)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of running a script; both texts are empty where all is well.

    ``error`` is why slurmctld could not load it, ``socket`` why luasocket is not there.
    """

    error: str
    socket: str


def library_of(site: Site) -> Path:
    """The shared Lua library the plugin links; raises InstallError naming what to install."""
    if site.plugin is None:
        raise InstallError(
            f"Slurm {site.version} has no Lua plugin ({PLUGIN_FILE} is not in its PluginDir): "
            "on Debian and Ubuntu install slurm-wlm-basic-plugins; elsewhere Slurm must be built "
            "where the Lua development files are (lua-devel, liblua5.4-dev)"
        )
    linked = _LINKED.findall(_ldd(site.plugin))
    if not linked:
        raise InstallError(
            f"{site.plugin} links no Lua library (ldd names no liblua*.so): name the one "
            "slurmctld loads with --lua-library"
        )
    name, path = linked[0]
    if not path.startswith("/"):
        raise InstallError(f"{site.plugin} needs {name}, which is not installed")
    return Path(path)


def try_script(
    library: Path, script: Path, modules: Mapping[str, Path], user: Account | None = None
) -> Tried:
    """Run a script in a process of its own; ``modules`` come before those on Lua's path.

    Runs as ``user``, as slurmctld would. Raises InstallError where the library is no Lua.
    """
    asked = {
        "library": str(library),
        "script": str(script),
        "preload": {name: str(path) for name, path in modules.items()},
    }
    interpreter = str(Path(sys.executable).resolve())
    reply = run_argv(
        (
            "env",
            "-u",
            "LUA_PATH",
            "-u",
            "LUA_CPATH",
            "-u",
            "LUA_INIT",
            interpreter,
            "-I",
            "-S",
            str(PROBE),
        ),
        user=user if os.geteuid() == 0 else None,
        timeout_s=PROBE_TIMEOUT_S,
        given=json.dumps(asked),
    )
    return _tried(reply, library)


def socket_advice(library: Path, problem: str) -> str:
    """What to install where a Lua has no luasocket."""
    version = re.search(r"5\.\d", library.name)
    lua = f"Lua {version[0]}" if version else "this Lua"
    return (
        f'{library.name} cannot load "socket.unix" ({problem.splitlines()[0].rstrip(":")}): '
        f"without it every job passes unchanged. Install luasocket for {lua}: on Debian and "
        "Ubuntu lua-socket, on Fedora and EPEL lua-socket, else `luarocks install luasocket`"
    )


def _tried(reply: str, library: Path) -> Tried:
    """The last line the probe wrote; the script may have printed lines of its own."""
    try:
        raw = json.loads(reply.splitlines()[-1])
        return Tried(error=raw["error"], socket=raw["socket"])
    except (ValueError, IndexError, KeyError):
        raise InstallError(f"{library} did not answer as Lua does: {reply[-200:]!r}") from None


def _ldd(plugin: Path) -> str:
    try:
        done = subprocess.run(
            ("ldd", str(plugin)), capture_output=True, text=True, check=False, timeout=20
        )
    except OSError as error:
        raise InstallError(
            f"ldd cannot be run ({error.strerror}): name the Lua library that slurmctld loads "
            "with --lua-library"
        ) from None
    return done.stdout
