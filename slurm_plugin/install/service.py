"""The daemon's side of an installation: its policy, home and systemd service, a sample asked."""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path

import yaml

from profiles.roots import HOME_VARIABLE

from ..config import Daemon, SlurmPolicy, policy_of, read_policy
from ..daemon import client
from ..errors import InstallError, SlurmError
from ..protocol import HookAnswer, HookRequest
from . import disk
from .changes import Changes, Say
from .options import Options, program
from .processes import CommandLine
from .records import FileKind
from .site import SlurmSite
from .unit import SERVICE, unit

POLICY_FILE = "slurm.yaml"
UNIT = Path("/etc/systemd/system") / SERVICE
BOOTED = Path("/run/systemd/system")  # is there where systemd runs the machine: sd_booted(3)
LIST_TIMEOUT_S = 120.0
START_TIMEOUT_S = 200.0
ANSWER_TIMEOUT_S = 60.0
SAMPLE_COMMENT = "model=resnet50 precision=amp epochs=1 samples=1281167 batch=64"
RELOAD = CommandLine(("systemctl", "daemon-reload"))
STOP = CommandLine(("systemctl", "disable", "--now", SERVICE), timeout_s=START_TIMEOUT_S)

_SAMPLE = HookRequest(
    user="root",
    name="precision-time-check",
    comment=SAMPLE_COMMENT,
    tres_per_node="gres:gpu:1",
)


def default_policy(prefix: Path | None = None) -> str:
    """The policy file of a new installation; with a prefix, the daemon's socket lies below it."""
    folder = resources.files("slurm_plugin") / "install"
    text = (folder / POLICY_FILE).read_text(encoding="utf-8")
    if prefix is None:
        return text
    socket = Daemon().socket
    return text.replace(f"socket: {socket}", f"socket: {prefix / socket.relative_to('/')}")


def policy_at(options: Options) -> SlurmPolicy:
    """The policy as it is, or as it will be once the file is written; raises PolicyError."""
    path = options.on_disk(options.policy_path)
    if path.exists():
        return read_policy(path)
    return policy_of(yaml.safe_load(default_policy(options.prefix)), str(path))


def write_policy(changes: Changes, options: Options) -> None:
    """The policy file, where there is none."""
    path = options.on_disk(options.policy_path)
    if disk.read(path) is None:
        changes.make_directory(path.parent)
        text = default_policy(options.prefix)
        changes.write(path, FileKind.POLICY, None, text.encode())


def require_runnable(site: SlurmSite) -> None:
    """Raises InstallError where the SlurmUser cannot run this Python environment."""
    try:
        CommandLine((str(program()), "--version"), site.user).run()
    except InstallError as error:
        who = site.user.name if site.user else "this user"
        raise InstallError(
            f"{error}. The SlurmUser {who} runs the daemon: install Python and the package where "
            "every user can read them, such as /opt/precision-time"
        ) from None


def make_home(changes: Changes, options: Options, site: SlurmSite) -> None:
    """The directory of predictors of one's own, which belong to the SlurmUser."""
    owner = site.user if options.live else None
    changes.make_directory(options.on_disk(options.home_path), owner=owner)


def predictor_in_use(options: Options, site: SlurmSite) -> str:
    """The version the daemon will load; raises InstallError where it is of other tables."""
    home = {HOME_VARIABLE: str(options.home_path)}
    words = (str(program()), "models", "list", "--format", "json")
    try:
        listed = json.loads(CommandLine(words, site.user, home, LIST_TIMEOUT_S).run())
        used = next(model for model in listed if model["in_use"])
    except (InstallError, ValueError, StopIteration) as error:
        raise InstallError(f"{options.home_path} cannot be read: {error}") from None
    version = str(used["version"])
    if not used["of_these_tables"]:
        raise InstallError(
            f"{version} was fitted on other tables: run `precision-time fit` as the SlurmUser, "
            f"with {HOME_VARIABLE}={options.home_path}"
        )
    return version


def require_systemd(options: Options) -> None:
    """Raises InstallError where this machine has no systemd, before anything takes time."""
    if options.live and options.systemd and not BOOTED.is_dir():
        raise InstallError(
            f"this host does not run systemd (there is no {BOOTED}): run `precision-time slurm "
            f"daemon --config {options.policy_path}` by what starts services here, and add "
            "--no-systemd"
        )


def start(changes: Changes, options: Options, site: SlurmSite, socket: Path) -> None:
    """The unit written, the service running; without systemd only the socket's directory."""
    if not options.systemd:
        if options.live:
            changes.make_directory(socket.parent, 0o750, site.user)
        return
    path = options.on_disk(UNIT)
    before = disk.read(path)
    after = unit(
        site.user.name if site.user else "slurm",
        slurm_conf=options.in_system(site.conf),
        program=program(),
        config=options.policy_path,
        home=options.home_path,
        socket=socket,
    ).encode()
    changes.make_directory(path.parent)
    changes.write(path, FileKind.UNIT, before, after, then=RELOAD if options.live else None)
    if not options.live:
        return
    if not (_is("is-enabled") and _is("is-active")):
        start = CommandLine(("systemctl", "enable", "--now", SERVICE), timeout_s=START_TIMEOUT_S)
        changes.run(start, "start the daemon, also at boot", undo=STOP)
    elif before != after:
        again = CommandLine(("systemctl", "restart", SERVICE), timeout_s=START_TIMEOUT_S)
        changes.run(again, "the unit changed")


def ask_sample(socket: Path) -> tuple[HookAnswer, float]:
    """What the daemon answers to a sample request, and in how many seconds; raises InstallError."""
    started = time.perf_counter()
    try:
        answer = client.ask(socket, _SAMPLE)
    except SlurmError as error:
        raise InstallError(f"the daemon does not answer: {error}") from None
    return answer, time.perf_counter() - started


def is_ready(options: Options, socket: Path, say: Say, *, dry_run: bool) -> bool:
    """True once the daemon answers; one that systemd just started is waited for."""
    if not options.live:
        return True
    if not options.systemd:
        return _answers(socket)
    say(f"wait for the daemon on {socket}")
    until = time.monotonic() + ANSWER_TIMEOUT_S
    while not dry_run:
        try:
            ask_sample(socket)
            break
        except InstallError as error:
            if time.monotonic() > until:
                raise InstallError(f"{error} (waited {ANSWER_TIMEOUT_S:g} s)") from None
        time.sleep(0.2)
    return True


def _answers(socket: Path) -> bool:
    try:
        ask_sample(socket)
    except InstallError:
        return False
    return True


def _is(question: str) -> bool:
    try:
        CommandLine(("systemctl", question, "--quiet", SERVICE)).run()
    except InstallError:
        return False
    return True
