"""The proof that an installation works: a promise a line, and what to do where one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from predictor.cli.console import CheckedPromise

from ..cluster import Cluster
from ..config import SlurmPolicy
from ..errors import InstallError, PolicyError, SourceError
from ..order import order_field
from ..order import warnings as order_warnings
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from . import files, lua, slurm_conf
from .install import UNIT, policy_at
from .site import SAMPLE_COMMENT, Options, SlurmSite, ask_sample, find_site, predictor_in_use
from .slurm_conf import LINE, PLUGIN

HINT = "`precision-time slurm install --dry-run` shows what is missing"
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
        yield _checked(promise, check)


def _checks(
    options: Options, site: SlurmSite, policy: SlurmPolicy
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "files are as installed", lambda: _files(options, site)
    yield "slurm.conf names the Lua plugin", lambda: _slurm_conf(site)
    if not options.live:
        return
    yield "the Lua of slurmctld has luasocket", lambda: _lua(options, site)
    yield "the predictor is of these tables", lambda: predictor_in_use(options, site)
    yield "the daemon answers in time", lambda: _answer(policy)
    yield "slurmctld has the plugin loaded", lambda: _loaded(site)
    yield "sbatch shows our line", lambda: _submitted(site, policy)
    if policy.order.mode != "off":
        yield "the scheduler heeds the order", lambda: _order(policy)
    if policy.soft_time.mode != "off":
        yield "soft time ends no job", lambda: _soft_time(policy)


def _checked(promise: str, check: Callable[[], str]) -> CheckedPromise:
    try:
        return CheckedPromise(promise, True, check())
    except (InstallError, PolicyError) as error:
        return CheckedPromise(promise, False, str(error))


def _files(options: Options, site: SlurmSite) -> str:
    directory, problems = site.conf.parent, []
    for name, text in files.modules().items():
        content = files.read(directory / name)
        if content != text:
            problems.append(
                f"{directory / name} is {'gone' if content is None else 'of another release'}"
            )
    script = files.read(directory / files.SCRIPT)
    if script is None:
        problems.append(f"{directory / files.SCRIPT} is gone")
    elif not files.mentions_us(script):
        problems.append(f"{directory / files.SCRIPT} does not call precision_time")
    expected = [options.config, *([UNIT] if options.systemd else [])]
    places = [options.on_disk(path) for path in expected]
    problems += [f"{path} is gone" for path in places if not path.exists()]
    if problems:
        raise InstallError(f"{', '.join(problems)}; {HINT}")
    return f"{len(files.modules()) + 1 + len(places)} files"


def _lua(options: Options, site: SlurmSite) -> str:
    library = lua.library_of(site, options)
    lua.require_luasocket(library, site)
    return library.name


def _slurm_conf(site: SlurmSite) -> str:
    if PLUGIN not in (slurm_conf.plugins(site.text) or site.running or ()):
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


def _order(policy: SlurmPolicy) -> str:
    """Where the order of the queue is written, and what an admin should know of that."""
    try:
        settings = SlurmSource(Commands.of(policy.slurm)).settings()
    except SourceError as error:
        raise InstallError(str(error)) from None
    found, told = order_field(settings), order_warnings(policy.order, settings)
    if found is None:
        raise InstallError("; ".join(told))
    return "; ".join((found.name, *told))


def _soft_time(policy: SlurmPolicy) -> str:
    """How far past a limit OverTimeLimit lets jobs run, by partition; elsewhere nothing is soft."""
    source = SlurmSource(Commands.of(policy.slurm))
    try:
        parts, settings = source.partitions(), source.settings()
    except SourceError as error:
        raise InstallError(str(error)) from None
    view = Cluster(taken_s=0.0, settings=settings, partitions=parts)
    over = {part.name: view.over_min(part) for part in parts}
    reached = [
        f"{name} {'without end' if least == inf else f'{least:g} min'}"
        for name, least in over.items()
        if least
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
    done = site.command("sbatch", *job).completed()
    ours = [line for line in done.stderr.splitlines() if MARK in line]
    if not ours:
        printed = " ".join(done.stderr.split())[-300:]
        raise InstallError(
            f"it shows none ({printed or 'nothing at all'}): see the log of slurmctld for {MARK!r}"
        )
    return ours[0].partition(MARK)[2].strip()
