"""The proof that an installation works: a promise a line, and what to do where one fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..config import SlurmPolicy
from ..errors import InstallError, PolicyError
from . import disk, hook, lua_library, service, slurm_conf
from .options import Options
from .records import FileKind, Records, digest, read_records
from .site import SlurmSite, find_site
from .slurm_conf import PARAMETER, PLUGIN

HINT = "`precision-time slurm install --dry-run` shows what is missing"
MARK = "precision-time:"
SAMPLES = 5
TRIAL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CheckedPromise:
    """One promise; ``detail`` says what was seen, or why not and what to do."""

    promise: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        """The line an admin reads."""
        return f"{'ok' if self.holds else 'FAILED':<8}{self.promise}" + (
            f": {self.detail}" if self.detail else ""
        )


def run_checks(options: Options) -> Iterator[CheckedPromise]:
    """Every promise as soon as it is looked at."""
    found = "Slurm and the policy are found"
    try:
        site = find_site(options)
        policy = service.policy_at(options)
    except (InstallError, PolicyError) as error:
        yield CheckedPromise(found, False, str(error))
        return
    version = f"Slurm {site.version or '(version unknown)'}"
    yield CheckedPromise(found, True, f"{version}, {site.conf}")
    for promise, check in _checks(options, site, policy):
        yield _checked(promise, check)


def _checks(
    options: Options, site: SlurmSite, policy: SlurmPolicy
) -> Iterator[tuple[str, Callable[[], str]]]:
    records = read_records(options.records)
    yield "files are as installed", lambda: _files(records)
    yield "the Lua of slurmctld loads the hook", lambda: _lua(options, site)
    yield "slurm.conf names the Lua plugin", lambda: _slurm_conf(site)
    if not options.live:
        return
    yield "the predictor is of these tables", lambda: service.predictor_in_use(options, site)
    yield "the daemon answers in time", lambda: _answer(policy)
    yield "slurmctld has the plugin loaded", lambda: _loaded(site)
    yield "sbatch shows our line", lambda: _submitted(site, policy)


def _checked(promise: str, check: Callable[[], str]) -> CheckedPromise:
    try:
        return CheckedPromise(promise, True, check())
    except (InstallError, PolicyError) as error:
        return CheckedPromise(promise, False, str(error))


def _files(records: Records) -> str:
    if not records.files:
        raise InstallError(f"nothing is recorded in {records.directory}: run install")
    problems = []
    for record in records.files:
        content = disk.read(record.path)
        if content is None:
            problems.append(f"{record.path} is gone")
        elif digest(content) != record.after and record.kind in (FileKind.MODULE, FileKind.UNIT):
            problems.append(f"{record.path} was changed since")
    if problems:
        raise InstallError(f"{', '.join(problems)}; {HINT}")
    return f"{len(records.files)} files"


def _lua(options: Options, site: SlurmSite) -> str:
    """Try the files that are live, not those of this release."""
    library = options.lua_library or lua_library.library_of(site)
    path = site.conf.parent / hook.SCRIPT
    script = disk.read(path)
    if script is None:
        raise InstallError(f"there is no {path}: run install")
    if not hook.mentions_us(disk.text(script)):
        raise InstallError(f"{path} does not call precision_time: see install --dry-run")
    files = {name: disk.read(path.parent / name) for name in hook.modules()}
    missing = [str(path.parent / name) for name, content in files.items() if content is None]
    if missing:
        raise InstallError(f"{', '.join(missing)} is missing: run install")
    modules = {name: content for name, content in files.items() if content is not None}
    trial = lua_library.try_script(library, script, modules, site.user)
    if trial.error:
        raise InstallError(f"{library}: {trial.error}")
    if trial.socket:
        raise InstallError(lua_library.socket_advice(library, trial.socket))
    return f"{library.name}, with luasocket"


def _slurm_conf(site: SlurmSite) -> str:
    if not slurm_conf.names_lua(site.conf, disk.text(disk.read(site.conf))):
        raise InstallError(f"{site.conf} has no {PARAMETER}={PLUGIN}: run install")
    return ""


def _answer(policy: SlurmPolicy) -> str:
    socket, allowed_s = policy.daemon.socket, policy.daemon.deadline_ms / 1000
    try:
        socket.stat()
    except PermissionError:
        raise InstallError("only root and SlurmUser may look: run as root") from None
    except OSError as error:
        raise InstallError(f"{socket}: {error.strerror}; start precision-time-slurm") from None
    service.ask_sample(socket)  # the first one may fill a cache
    replies = [service.ask_sample(socket) for _ in range(SAMPLES)]
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


def _submitted(site: SlurmSite, policy: SlurmPolicy) -> str:
    """The line our hook shows for a job that is only tested; nothing is queued.

    The cluster may well refuse the job (no such GPU, no such partition): the hook ran before.
    """
    if policy.limits.mode == "off" and policy.placement.mode == "off":
        return "the policy is off for limits and placement: nothing is to be shown"
    job = ("--test-only", "--comment", service.SAMPLE_COMMENT, "--gres=gpu:1", "--wrap", "true")
    sbatch = site.command("sbatch", *job)
    try:
        done = subprocess.run(
            sbatch.argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_TIMEOUT_S,
            check=False,
            env={**os.environ, **sbatch.environment},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{sbatch.argv[0]} cannot be run: {error}") from None
    ours = [line for line in done.stderr.splitlines() if MARK in line]
    if not ours:
        printed = " ".join(done.stderr.split())[-300:]
        raise InstallError(
            f"it shows none ({printed or 'nothing at all'}): see the log of slurmctld for {MARK!r}"
        )
    return ours[0].partition(MARK)[2].strip()
