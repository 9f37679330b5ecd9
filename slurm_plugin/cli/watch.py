"""`precision-time slurm watch`: limits of running jobs follow the step rate they report."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click

from predictor.cli.console import warn

from ..config import DEFAULT_PATH, Policy
from ..errors import PolicyError, SourceError


@click.command()
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path),
    help="The policy file, read anew before every pass.  "
    "[default: /etc/precision-time/slurm.yaml, if it is there]",
)  # fmt: skip
@click.option("--once", is_flag=True, help="One pass over the running jobs, then end.")
@click.option("--dry-run", is_flag=True, help="Say what would change, change nothing.")
def watch(config: Path | None, once: bool, dry_run: bool) -> None:
    """Extend or trim limits we set, as the jobs report how fast they go.

    What happens is said on stdout, a line each. `watch.mode` of the policy must be `advise` or
    `apply`; to apply, run it as SlurmUser or root.
    """
    from ..daemon.loading import policy_at

    policy = policy_at(config)
    if policy.watch.mode == "off":
        click.echo(f"watch.mode is off in {config or DEFAULT_PATH}: nothing is followed")
        return
    from ..sources.choose import open_source
    from ..watch.watcher import Watcher

    watcher = Watcher(open_source(policy.slurm), click.echo, dry_run)
    if once:
        done = len(watcher.watch(policy))
        changed = policy.watch.mode == "apply" and not dry_run
        click.echo(f"{done} limits {'changed' if changed else 'would change'}")
        return
    with _stop_asked() as stop:
        _follow(watcher.watch, policy, lambda: policy_at(config), stop)


def _follow(
    look: Callable[[Policy], object], policy: Policy, read: Callable[[], Policy], stop: Event
) -> None:
    while not stop.is_set():
        try:
            policy = read()
        except PolicyError as error:
            warn(f"{error}; the policy read before stays")
        try:
            look(policy)
        except SourceError as error:
            warn(str(error))
        stop.wait(policy.watch.interval_s)


@contextmanager
def _stop_asked() -> Iterator[Event]:
    """Set by SIGTERM and SIGINT: the pass under way is finished first."""
    stop = Event()
    wanted = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in wanted}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
