"""The proof that an installation works: a promise a line, and what to do where one fails."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

from predictor.cli.console import CheckedPromise
from profiles.gpus import variants
from profiles.roots import HOME_VARIABLE

from ..cluster import Cluster
from ..config import SlurmPolicy
from ..errors import InstallError, PolicyError, SlurmError, SourceError
from ..nodes import gpu_of, name_of
from ..order import order_field
from ..order import warnings as order_warnings
from ..protocol import HookAnswer, HookRequest, ask
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from . import files
from .files import UNIT, policy_at
from .site import LINE, PLUGIN, CommandLine, Options, SlurmSite, find_site, plugins, program

HINT = "`precision-time slurm install --dry-run` shows what to do"
MARK = "precision-time:"
SAMPLES = 5


def run_checks(options: Options) -> Iterator[CheckedPromise]:
    """Every promise as soon as it is looked at."""
    found = "Slurm and the policy are found"
    try:
        site = find_site(options)
        policy = policy_at(options)
    except (InstallError, PolicyError) as error:
        yield CheckedPromise(found, False, str(error))
        return
    version = f"Slurm {site.version or '(version unknown)'}"
    yield CheckedPromise(found, True, f"{version}, {site.conf}")
    for promise, check in _checks(options, site, policy):
        try:
            yield CheckedPromise(promise, True, check())
        except (InstallError, PolicyError, SourceError) as error:
            yield CheckedPromise(promise, False, str(error))


def _checks(
    options: Options, site: SlurmSite, policy: SlurmPolicy
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "files are as installed", lambda: _files(options, site, policy)
    yield "slurm.conf names the Lua plugin", lambda: _named(site)
    if not options.live:
        return
    yield "the Lua of slurmctld has luasocket", lambda: require_luasocket(options, site)
    yield "the predictor is of these tables", lambda: predictor_in_use(options, site)
    yield "the daemon answers in time", lambda: _answer(policy)
    yield "slurmctld has the plugin loaded", lambda: _loaded(site)
    yield "the GPUs of the nodes are known", lambda: _gpus(policy, site)
    yield "sbatch shows our line", lambda: _submitted(site, policy)
    if policy.order.mode != "off":
        yield "the scheduler heeds the order", lambda: _order(policy, site)
    if policy.soft_time.mode != "off":
        yield "soft time ends no job", lambda: _soft_time(policy, site)


def _files(options: Options, site: SlurmSite, policy: SlurmPolicy) -> str:
    ours = {site.conf.parent / name: text for name, text in files.modules().items()}
    script = site.conf.parent / files.SCRIPT
    others = [options.config, *([UNIT] if options.systemd else [])]
    places = [*ours, script, *(options.on_disk(path) for path in others)]
    problems = [f"{path} is missing" for path in places if not path.exists()]
    for path, text in ours.items():
        if files.read(path) not in (None, text):
            problems.append(f"{path} is of another release")
    if (found := files.read(script)) is not None and not files.mentions_us(found):
        problems.append(f"{script} does not call precision_time")
    elif found and files.is_ours(found) and files.socket_of(found) != policy.daemon.socket:
        problems.append(f"{script} asks {files.socket_of(found)}, not daemon.socket")
    if problems:
        raise InstallError(f"{', '.join(problems)}; {HINT}")
    return f"{len(places)} files"


def _named(site: SlurmSite) -> str:
    if PLUGIN not in (plugins(site.text) or site.running or ()):
        raise InstallError(f"{site.conf} has no {LINE}: run install")
    return ""


def _answer(policy: SlurmPolicy) -> str:
    socket, allowed_s = policy.daemon.socket, policy.daemon.deadline_ms / 1000
    try:
        socket.stat()
    except PermissionError:
        raise InstallError("only root and SlurmUser may look: run as root") from None
    except OSError as error:
        raise InstallError(f"{socket}: {error.strerror}; start precision-time-slurm") from None
    ask_sample(socket)  # the first one may fill a cache
    replies = [ask_sample(socket) for _ in range(SAMPLES)]
    answer, elapsed_s = min(replies, key=lambda reply: reply[1])
    if elapsed_s > allowed_s:
        raise InstallError(
            f"{elapsed_s * 1000:.1f} ms at best of {SAMPLES}; "
            f"{policy.daemon.deadline_ms:g} ms are allowed: see its log"
        )
    return f"{elapsed_s * 1000:.1f} ms; {answer.log}"


def _loaded(site: SlurmSite) -> str:
    if site.running is None:
        raise InstallError("slurmctld does not answer: start it, or see its log")
    if PLUGIN not in site.running:
        raise InstallError(
            f"slurmctld has {','.join(site.running) or 'none'}: run scontrol reconfigure, "
            "or restart slurmctld"
        )
    return ",".join(site.running)


def _gpus(policy: SlurmPolicy, site: SlurmSite) -> str:
    """What each GRES type is taken for; raises InstallError naming those that nobody knows."""
    known, unknown = dict[str, None](), dict[str, None]()
    for node in SlurmSource(Commands.of(policy.slurm, site.conf)).nodes():
        for gres in node.gpus:
            gpu, name = gpu_of(node, gres, policy.hardware), gres.type or f"gpu of {node.name}"
            if gpu is None:
                unknown[name] = None
                continue
            others = variants(name_of(gpu, name, policy.hardware))
            one_of = f", one of {len(others) + 1} (hardware.gpu_types may say)" if others else ""
            known[f"{name} is {gpu.name}{one_of}"] = None
    if unknown:
        where = "hardware.gpu_types, of nodes whose GRES has no type in hardware.node_gpus"
        raise InstallError(f"{', '.join(unknown)}: say what they are in {where}")
    return ", ".join(known) or "there are none"


def _order(policy: SlurmPolicy, site: SlurmSite) -> str:
    """Where the order of the queue is written, and what an admin should know of that."""
    settings = SlurmSource(Commands.of(policy.slurm, site.conf)).settings()
    found, told = order_field(settings), order_warnings(policy.order, settings)
    if found is None:
        raise InstallError("; ".join(told))
    return "; ".join((found.name, *told))


def _soft_time(policy: SlurmPolicy, site: SlurmSite) -> str:
    """How far past a limit OverTimeLimit lets jobs run, by partition; elsewhere nothing is soft."""
    source = SlurmSource(Commands.of(policy.slurm, site.conf))
    view = Cluster(taken_s=0.0, settings=source.settings(), partitions=source.partitions())
    reached = [
        f"{part.name} {'without end' if over == inf else f'{over:g} min'}"
        for part in view.partitions
        if (over := view.over_min(part))
    ]
    if not reached:
        raise InstallError(
            "no partition has an OverTimeLimit, so nothing is written: set it in slurm.conf to the "
            "longest time by which a limit may be too short"
        )
    return f"{', '.join(reached)} past the limit; `precision-time slurm watch` lets limits grow"


def _submitted(site: SlurmSite, policy: SlurmPolicy) -> str:
    """The line our hook shows for a job that is only tested; nothing is queued.

    The cluster may well refuse the job (no such GPU, no such partition): the hook ran before.
    """
    if policy.limits.mode == "off" and policy.placement.mode == "off":
        return "the policy is off for limits and placement: nothing is to be shown"
    job = ("--test-only", "--comment", SAMPLE_COMMENT, "--gres=gpu:1", "--wrap", "true")
    for pause_s in (0.0, ASKED_AGAIN_S, ASKED_AGAIN_S):  # one answer may be late on a busy host
        time.sleep(pause_s)
        done = site.command("sbatch", *job).completed()
        if ours := [line for line in done.stderr.splitlines() if MARK in line]:
            return ours[0].partition(MARK)[2].strip()
    printed = " ".join(done.stderr.split())[-300:] or "nothing at all"
    raise InstallError(f"it shows none ({printed}): see the log of slurmctld for {MARK!r}")


ANSWER_TIMEOUT_S = 60.0
ASKED_AGAIN_S = 2.5  # the hook asks again 2 s after an answer that was late
LIST_TIMEOUT_S = 120.0
SAMPLE_COMMENT = "model=resnet50 precision=amp epochs=1 samples=1281167 batch=64"
_SAMPLE = HookRequest(
    user="root", name="precision-time-check", comment=SAMPLE_COMMENT, tres_per_node="gres:gpu:1"
)


def ask_sample(socket: Path) -> tuple[HookAnswer, float]:
    """What the daemon answers to a sample request, and in how many seconds; raises InstallError."""
    started = time.perf_counter()
    try:
        answer = ask(socket, _SAMPLE)
    except SlurmError as error:
        raise InstallError(f"the daemon does not answer: {error}") from None
    return answer, time.perf_counter() - started


def responds(socket: Path, *, wait: bool) -> bool:
    """Whether the daemon answers; with ``wait`` it just started, and InstallError is raised late.

    Raises InstallError where it was waited for in vain.
    """
    until = time.monotonic() + (ANSWER_TIMEOUT_S if wait else 0.0)
    while True:
        try:
            ask_sample(socket)
            return True
        except InstallError as error:
            if not wait:
                return False
            if time.monotonic() > until:
                raise InstallError(
                    f"{error} (waited {ANSWER_TIMEOUT_S:g} s): see its log; slurm.conf is "
                    "untouched, and `uninstall` removes what was written"
                ) from None
        time.sleep(0.2)


def predictor_in_use(options: Options, site: SlurmSite) -> str:
    """The version the daemon will load; raises InstallError where it is of other tables."""
    home = ((HOME_VARIABLE, str(options.home)),)
    words = (str(program()), "models", "list", "--format", "json")
    try:
        listed = json.loads(CommandLine(words, site.user, home, LIST_TIMEOUT_S).run())
        used = next(model for model in listed if model["in_use"])
    except (InstallError, ValueError, StopIteration) as error:
        raise InstallError(f"{options.home} cannot be read: {error}") from None
    version = str(used["version"])
    if not used["of_these_tables"]:
        raise InstallError(
            f"{version} was fitted on other tables: run `precision-time fit` as the SlurmUser, "
            f"with {HOME_VARIABLE}={options.home}"
        )
    return version


PLUGIN_FILE = "job_submit_lua.so"
_PACKAGED = ("/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm")
_BUILT = ("/usr/local/lib/slurm", "/opt/slurm/lib*/slurm")
USUAL_PLUGIN_DIRS = (*_PACKAGED, *_BUILT)
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
    stated = [Path(name) for name in (site.plugin_dir or "").split(":") if name]
    usual = (path for pattern in USUAL_PLUGIN_DIRS for path in Path("/").glob(pattern[1:]))
    places = (place / PLUGIN_FILE for place in (*stated, *usual))
    plugin = next((path for path in places if path.exists()), None)
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


def require_luasocket(options: Options, site: SlurmSite) -> str:
    """The Lua library; raises InstallError, saying what to install, where it lacks luasocket."""
    library = library_of(site, options)
    interpreter = str(Path(sys.executable).resolve())
    words = ("env", *_UNSET, interpreter, "-I", "-S", "-c", _PROBE, str(library))
    problem = CommandLine(words, site.user).run().strip()
    if problem:
        version = re.search(r"5\.\d", library.name)
        lua = f"Lua {version[0]}" if version else "this Lua"
        raise InstallError(
            f'{library.name} cannot load "socket.unix" ({problem.splitlines()[0].rstrip(":")}): '
            f"without it every job passes unchanged. Install luasocket for {lua}: on Debian and "
            "Ubuntu lua-socket, on Fedora and EPEL lua-socket, else `luarocks install luasocket`"
        )
    return library.name
