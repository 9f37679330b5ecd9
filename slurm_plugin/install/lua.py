"""The Lua that slurmctld's plugin links, and whether it has luasocket."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ..errors import InstallError
from .site import CommandLine, Options, SlurmSite

PLUGIN_FILE = "job_submit_lua.so"
USUAL_PLUGIN_DIRS = (
    "/usr/lib/*/slurm-wlm",
    "/usr/lib/*/slurm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
    "/opt/slurm/lib*/slurm",
)
_LINKED = re.compile(r"^\s*(liblua\S*) => (\S+)", re.M)
_UNSET = tuple(word for name in ("LUA_PATH", "LUA_CPATH", "LUA_INIT") for word in ("-u", name))
# Run by a Python of its own: loads the library as slurmctld does (modules find its symbols) and
# prints the error of `require "socket.unix"`, nothing where it loads.
_PROBE = """
import ctypes, sys
lua = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
lua.luaL_newstate.restype = lua.lua_tolstring.restype = ctypes.c_void_p
state = ctypes.c_void_p(lua.luaL_newstate())
if hasattr(lua, "luaL_openlibs"):
    lua.luaL_openlibs(state)
else:  # Lua 5.5
    lua.luaL_openselectedlibs(state, -1, 0)
code = b'local ok, problem = pcall(require, "socket.unix") return ok and "" or tostring(problem)'
assert lua.luaL_loadstring(state, code) == 0
if hasattr(lua, "lua_pcallk"):
    lua.lua_pcallk(state, 0, 1, 0, ctypes.c_ssize_t(0), None)
else:
    lua.lua_pcall(state, 0, 1, 0)
print(ctypes.string_at(lua.lua_tolstring(state, -1, None)).decode(errors="replace"))
"""


def library_of(site: SlurmSite, options: Options) -> Path:
    """The shared Lua library the plugin links; raises InstallError naming what to install."""
    if options.lua_library is not None:
        return options.lua_library
    plugin = _plugin(site)
    if plugin is None:
        raise InstallError(
            f"Slurm {site.version or 'here'} has no Lua plugin ({PLUGIN_FILE} is not in its "
            "PluginDir): on Debian and Ubuntu install slurm-wlm-basic-plugins; elsewhere Slurm "
            "must be built where the Lua development files are (lua-devel, liblua5.4-dev)"
        )
    linked = _LINKED.search(CommandLine(("ldd", str(plugin))).run())
    if linked is None:
        raise InstallError(
            f"{plugin} links no Lua library (ldd names no liblua*.so): name the one slurmctld "
            "loads with --lua-library"
        )
    name, path = linked.groups()
    if not path.startswith("/"):
        raise InstallError(f"{plugin} needs {name}, which is not installed")
    return Path(path)


def require_luasocket(library: Path, site: SlurmSite) -> None:
    """Raises InstallError, saying what to install, where that Lua cannot load luasocket."""
    interpreter = str(Path(sys.executable).resolve())
    words = ("env", *_UNSET, interpreter, "-I", "-S", "-c", _PROBE, str(library))
    problem = CommandLine(words, site.user).run().strip()
    if not problem:
        return
    version = re.search(r"5\.\d", library.name)
    lua = f"Lua {version[0]}" if version else "this Lua"
    raise InstallError(
        f'{library.name} cannot load "socket.unix" ({problem.splitlines()[0].rstrip(":")}): '
        f"without it every job passes unchanged. Install luasocket for {lua}: on Debian and "
        "Ubuntu lua-socket, on Fedora and EPEL lua-socket, else `luarocks install luasocket`"
    )


def _plugin(site: SlurmSite) -> Path | None:
    stated = [Path(name) for name in (site.plugin_dir or "").split(":") if name]
    usual = (path for pattern in USUAL_PLUGIN_DIRS for path in Path("/").glob(pattern[1:]))
    found = (place / PLUGIN_FILE for place in (*stated, *usual))
    return next((path for path in found if path.exists()), None)
