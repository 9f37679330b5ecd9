"""The proof that an installation works: a promise a line, and what to do where one fails."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..config import Policy
from ..errors import InstallError, PolicyError
from . import disk, hook, hook_plan, lua_library, predictors, sample
from .options import Options
from .plan import policy
from .records import Records, read_records
from .site import Site, find_site
from .slurm_conf import PLUGIN
from .slurm_conf_plan import names_lua
from .steps import Kind, digest
from .trial import submit_trial

HINT = "`precision-time slurm install --dry-run` shows what is missing"


class State(StrEnum):
    """What came of a promise."""

    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise; ``detail`` says what was seen, or why not and what to do."""

    state: State
    promise: str
    detail: str = ""

    def __str__(self) -> str:
        """The line an admin reads."""
        return f"{self.state:<8}{self.promise}" + (f": {self.detail}" if self.detail else "")


class SkippedError(Exception):
    """This promise cannot be looked at here; the text says why."""


Check = Callable[[], str]


def run_checks(options: Options) -> Iterator[Finding]:
    """Every finding as soon as it is known."""
    try:
        site = find_site(options)
        rules = policy(options)
    except (InstallError, PolicyError) as error:
        yield Finding(State.FAILED, "Slurm and the policy are found", str(error))
        return
    yield Finding(
        State.OK,
        "Slurm and the policy are found",
        f"Slurm {site.version or '(version unknown)'}, {site.conf}",
    )
    for promise, check in _checks(options, site, rules):
        yield _finding(promise, check)


def _checks(options: Options, site: Site, rules: Policy) -> Iterator[tuple[str, Check]]:
    records = read_records(options.records)
    yield "files are as installed", lambda: _files(records)
    yield "the Lua of slurmctld loads the hook", lambda: _lua(options, site)
    yield "slurm.conf names the Lua plugin", lambda: _slurm_conf(site)
    if not options.live:
        return
    yield "a predictor is fitted", lambda: _predictor(options, site)
    yield "the daemon's socket is its own", lambda: _socket(site, rules)
    yield "the daemon answers in time", lambda: _answer(site, rules)
    yield "slurmctld has the plugin loaded", lambda: _loaded(site)
    yield "sbatch shows our line", lambda: submit_trial(site, rules)


def _finding(promise: str, check: Check) -> Finding:
    try:
        return Finding(State.OK, promise, check())
    except SkippedError as why:
        return Finding(State.SKIPPED, promise, str(why))
    except (InstallError, PolicyError) as error:
        return Finding(State.FAILED, promise, str(error))


def _files(records: Records) -> str:
    if not records.files:
        raise InstallError(f"nothing is noted in {records.directory}: run install")
    problems = []
    for record in records.files:
        content = disk.read(record.path)
        if content is None:
            problems.append(f"{record.path} is gone")
        elif digest(content) != record.after and record.kind in (Kind.MODULE, Kind.UNIT):
            problems.append(f"{record.path} was changed since")
    if problems:
        raise InstallError(f"{', '.join(problems)}; {HINT}")
    return f"{len(records.files)} files"


def _lua(options: Options, site: Site) -> str:
    """Try the files that are live, not those of this release."""
    library = options.lua_library or lua_library.library_of(site)
    path = site.conf.parent / hook.SCRIPT
    script = disk.read(path)
    if script is None:
        raise InstallError(f"there is no {path}: run install")
    if not hook.mentions_us(script.decode(errors="replace")):
        raise InstallError(f"{path} does not call precision_time: see install --dry-run")
    directory = options.on_disk(options.lua_dir or options.in_system(site.conf).parent)
    files = {name: disk.read(directory / name) for name in hook.modules()}
    missing = [str(directory / name) for name, content in files.items() if content is None]
    if missing:
        raise InstallError(f"{', '.join(missing)} is missing: run install")
    found = {name: content for name, content in files.items() if content is not None}
    tried = hook_plan.try_files(site, library, script, found)
    if tried.error:
        raise InstallError(f"{library}: {tried.error}")
    if tried.socket:
        raise InstallError(lua_library.socket_advice(library, tried.socket))
    return f"{library.name}, with luasocket"


def _slurm_conf(site: Site) -> str:
    if not names_lua(site):
        raise InstallError(f"{site.conf} has no JobSubmitPlugins={PLUGIN}: run install")
    return ""


def _predictor(options: Options, site: Site) -> str:
    used = predictors.in_use(options, site)
    if used is None:
        raise InstallError(f"none in {options.home_path}: run install")
    if not used.current:
        raise InstallError(f"{used.version} was fitted on other tables: run install to refit")
    return used.version


def _socket(site: Site, rules: Policy) -> str:
    path = rules.daemon.socket
    try:
        status = path.stat()
        directory = path.parent.stat()
    except PermissionError:
        raise SkippedError(_only_for(site)) from None
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}; is the daemon running?") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise InstallError(f"{path} is no socket: remove it and restart the daemon")
    owners = {0, site.user.uid if site.user else 0}
    if status.st_uid not in owners or directory.st_uid not in owners:
        raise InstallError(f"{path} belongs to user {status.st_uid}, not to the SlurmUser")
    if directory.st_mode & stat.S_IWOTH and not directory.st_mode & stat.S_ISVTX:
        raise InstallError(f"{path.parent} can be written by everybody: chmod o-w it")
    return f"{path}, mode {stat.S_IMODE(status.st_mode):o}"


def _answer(site: Site, rules: Policy) -> str:
    allowed_s = rules.daemon.deadline_ms / 1000
    path = rules.daemon.socket
    try:
        path.stat()
    except PermissionError:
        raise SkippedError(_only_for(site)) from None
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}; start precision-time-slurm") from None
    sample.ask(path)  # the first one may fill a cache
    replies = [sample.ask(path) for _ in range(5)]
    best = min(replies, key=lambda reply: reply.elapsed_s)
    if best.elapsed_s > allowed_s:
        raise InstallError(
            f"{best.elapsed_s * 1000:.1f} ms at best of {len(replies)}; "
            f"{rules.daemon.deadline_ms:g} ms are allowed: see its log"
        )
    return f"{best.elapsed_s * 1000:.1f} ms; {best.answer.log}"


def _only_for(site: Site) -> str:
    return f"only root and {site.user.name if site.user else 'SlurmUser'} may look: run as root"


def _loaded(site: Site) -> str:
    if site.running is None:
        raise InstallError("slurmctld does not answer: start it, or see its log")
    if PLUGIN not in site.running:
        raise InstallError(
            f"slurmctld has {','.join(site.running) or 'none'}: run scontrol reconfigure, "
            "or restart slurmctld"
        )
    return ",".join(site.running)
