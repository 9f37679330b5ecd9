"""The plan of an installation, in the order that is safe at every point.

The daemon comes first and must answer; then the Lua files, tried before in the very library that
slurmctld loads; then slurm.conf, for a slurmctld that starts with ``JobSubmitPlugins=lua`` and
finds no script ends; last ``scontrol reconfigure``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..config import Policy, policy_of, read_policy
from . import default_policy, disk, predictors, sample, systemd
from .hook import Place
from .hook_plan import HookPlan, plan_hook
from .options import Options
from .records import Records
from .site import Site
from .slurm_conf_plan import slurm_conf_steps
from .steps import AwaitDaemon, Kind, MakeDirectory, Plan, Step, WriteFile


def plan_install(options: Options, site: Site, library: Path, records: Records) -> Plan:
    """Everything that is missing or out of date; raises InstallError where it would not work."""
    if options.live:
        predictors.require_runnable(site)
    socket = policy(options).daemon.socket
    hook = plan_hook(options, site, library, records, _place(options, site, socket))
    notes = list(hook.notes)
    steps = [*_policy_steps(options), *_predictor_steps(options, site)]
    steps += systemd.steps(options, site, socket)
    if options.live and not (options.systemd or socket.parent.exists()):
        steps.append(MakeDirectory(path=socket.parent, mode=0o750, owner=site.user))
    steps += hook.steps
    steps += _activation(options, site, hook, socket, notes)
    if not options.live:
        notes.append(
            "on the machine itself: precision-time fit as the SlurmUser, systemctl enable --now "
            "precision-time-slurm, scontrol reconfigure"
        )
    return Plan(tuple(steps), tuple(notes))


def policy(options: Options) -> Policy:
    """The policy as it is, or as it will be once the file is written; raises PolicyError."""
    path = options.on_disk(options.policy_path)
    if path.exists():
        return read_policy(path)
    return policy_of(default_policy.values(options.prefix), str(path))


def _policy_steps(options: Options) -> Iterator[Step]:
    path = options.on_disk(options.policy_path)
    if disk.read(path) is not None:
        return
    yield from _directory(path.parent)
    yield WriteFile(
        path=path, kind=Kind.POLICY, before=None, after=default_policy.text(options.prefix).encode()
    )


def _predictor_steps(options: Options, site: Site) -> Iterator[Step]:
    home = options.on_disk(options.home_path)
    if not home.exists():
        yield MakeDirectory(path=home, owner=site.user if options.live else None)
    if not (options.live and options.fit):
        return
    used = predictors.in_use(options, site)
    if used is None or not used.current:
        yield predictors.fit(options, site)


def _activation(
    options: Options, site: Site, hook: HookPlan, socket: Path, notes: list[str]
) -> Iterator[Step]:
    """slurm.conf and what follows it, once the daemon answers."""
    if not hook.activate:
        return
    if options.live and not options.systemd and not sample.answers(socket):
        notes.append(
            f"the daemon does not answer on {socket}: start `precision-time slurm daemon "
            f"--config {options.policy_path}` and run install again; until then slurm.conf "
            "stays as it is"
        )
        return
    if options.live and options.systemd:
        yield AwaitDaemon(socket=socket)
    yield from slurm_conf_steps(options, site, notes)


def _place(options: Options, site: Site, socket: Path) -> Place:
    conf_dir = options.in_system(site.conf).parent
    modules = options.lua_dir or conf_dir
    return Place(modules, socket, apart=modules != conf_dir)


def _directory(path: Path) -> Iterator[Step]:
    if not path.exists():
        yield MakeDirectory(path=path)
