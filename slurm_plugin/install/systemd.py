"""The service: its unit, started and enabled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import InstallError
from . import disk
from .options import UNIT, Options, program
from .processes import run_argv
from .site import Site
from .steps import Command, Kind, MakeDirectory, Step, WriteFile
from .unit import SERVICE, unit

START_TIMEOUT_S = 200.0
RELOAD = Command(argv=("systemctl", "daemon-reload"), why="systemd reads the unit")
STOP = Command(
    argv=("systemctl", "disable", "--now", SERVICE), why="stop the daemon", tolerant=True
)


def steps(options: Options, site: Site, socket: Path) -> Iterator[Step]:
    """The unit written, the service enabled and running; nothing without systemd."""
    if not options.systemd:
        return
    path = options.on_disk(UNIT)
    before = disk.read(path)
    after = unit(
        site, program=program(), config=options.policy_path, home=options.home_path, socket=socket
    ).encode()
    if before != after:
        if not path.parent.exists():
            yield MakeDirectory(path=path.parent)
        yield WriteFile(
            path=path,
            kind=Kind.UNIT,
            before=before,
            after=after,
            then=RELOAD if options.live else None,
        )
    if not options.live:
        return
    if not (_is("is-enabled") and _is("is-active")):
        yield Command(
            argv=("systemctl", "enable", "--now", SERVICE),
            why="start the daemon, also at boot",
            undo=STOP.argv,
            timeout_s=START_TIMEOUT_S,
        )
    elif before != after:
        yield Command(
            argv=("systemctl", "restart", SERVICE),
            why="the unit changed",
            timeout_s=START_TIMEOUT_S,
        )


def _is(question: str) -> bool:
    try:
        run_argv(("systemctl", question, "--quiet", SERVICE))
    except InstallError:
        return False
    return True
