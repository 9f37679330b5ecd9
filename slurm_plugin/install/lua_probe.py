"""Runs in a process of its own: loads a Lua library and a job submit script as slurmctld does.

Called with a JSON object on stdin: ``library`` (a shared object), ``script`` and ``preload``
(module name -> file). The last line it writes is a JSON object: ``error``, empty where slurmctld
could load the script, and ``socket``, the error of ``require "socket.unix"``, empty likewise.
Stands alone: only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import sys

# slurm.* names are constants in upper case and functions otherwise; both answer anything.
HARNESS = r"""
local script, preloads = %(script)s, %(preload)s
local quiet = function() return 0 end
slurm = setmetatable({}, {__index = function(_, name)
  if name == "NO_VAL" then return 4294967294 end
  if name == "INFINITE" then return 4294967295 end
  return name:match("^[%%u%%d_]+$") and 0 or quiet
end})
for name, file in pairs(preloads) do
  package.preload[name] = function() return assert(loadfile(file))(name) end
end
local has_socket, socket_error = pcall(require, "socket.unix")
local run = function()
  for name in pairs(preloads) do require(name) end
  assert(loadfile(script))()
  for _, name in ipairs({"slurm_job_submit", "slurm_job_modify"}) do
    local kind = type(_G[name])
    if kind ~= "function" then error(name .. " is a " .. kind .. ", not a function", 0) end
  end
end
local ok, problem = pcall(run)
return (ok and "" or tostring(problem)) .. "\0" .. (has_socket and "" or tostring(socket_error))
"""


def quoted(text: str) -> str:
    """A Lua string literal of any text."""
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode()) + '"'


def probe(library: str, script: str, preload: dict[str, str]) -> dict[str, str]:
    """What the library makes of the script."""
    lua = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # as slurmctld: modules find its symbols
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_void_p
    state = ctypes.c_void_p(lua.luaL_newstate())
    if hasattr(lua, "luaL_openlibs"):
        lua.luaL_openlibs(state)
    else:  # Lua 5.5
        lua.luaL_openselectedlibs(state, -1, 0)
    table = ", ".join(f"[{quoted(name)}] = {quoted(file)}" for name, file in preload.items())
    code = HARNESS % {"script": quoted(script), "preload": "{" + table + "}"}
    status = lua.luaL_loadstring(state, code.encode())
    if status == 0:
        status = _call(lua, state)
    length = ctypes.c_size_t()
    address = lua.lua_tolstring(state, -1, ctypes.byref(length))
    text = ctypes.string_at(address, length.value).decode(errors="replace") if address else ""
    if status != 0:
        return {"error": text or "no reason given", "socket": ""}
    error, _, socket = text.partition("\0")
    return {"error": error, "socket": socket}


def _call(lua: ctypes.CDLL, state: ctypes.c_void_p) -> int:
    if hasattr(lua, "lua_pcallk"):
        return int(lua.lua_pcallk(state, 0, 1, 0, ctypes.c_ssize_t(0), None))
    return int(lua.lua_pcall(state, 0, 1, 0))


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    result = probe(asked["library"], asked["script"], asked["preload"])
    ctypes.CDLL(None).fflush(None)  # what the script printed comes before our line
    print("\n" + json.dumps(result))
