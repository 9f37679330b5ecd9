"""`precision-time k8s check`: what stands in the way, a line per promise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from ..config import Config
from ..errors import KubernetesError
from ..server.loading import config_at, rules_of
from .cluster import api_client
from .promises import Promise, say

FOUND_SOMETHING = 1


@click.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration file.  [default: all defaults]",
)
@click.option(
    "--kubeconfig",
    metavar="FILE|in-cluster",
    help="Ask the API server what this account may do.  [default: not asked]",
)
@click.option(
    "--scheduler-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The KubeSchedulerConfiguration that names the extender.  [default: not looked at]",
)
@click.option(
    "--connect",
    metavar="HOST:PORT",
    help="Where the extender is reached from here.  [default: as in urlPrefix]",
)
@click.pass_context
def check(
    ctx: click.Context,
    config: Path | None,
    kubeconfig: str | None,
    scheduler_config: Path | None,
    connect: str | None,
) -> None:
    """Say a line per promise: ok, or FAILED with what to do.

    Exit code 1 where a promise is not kept, 2 where an argument is invalid.
    """
    configuration = config_at(config)
    rules_of(configuration)
    promises = chain(
        [Promise("the configuration can be used")],
        () if kubeconfig is None else _cluster(kubeconfig, configuration),
        () if scheduler_config is None else _scheduler(scheduler_config, configuration, connect),
    )
    if not say(promises):
        ctx.exit(FOUND_SOMETHING)


def _cluster(kubeconfig: str, config: Config) -> Iterator[Promise]:
    from .access import allowed

    yield from allowed(api_client(kubeconfig), config)


def _scheduler(path: Path, config: Config, connect: str | None) -> Iterator[Promise]:
    from .reach import reached
    from .scheduler_config import promises_of, read_extender

    text = "the registration can be read"
    try:
        extender = read_extender(path)
    except KubernetesError as error:
        yield Promise(text, str(error))
        return
    yield Promise(text)
    yield from promises_of(extender, config.hardware.resources)
    yield from reached(extender, connect)
