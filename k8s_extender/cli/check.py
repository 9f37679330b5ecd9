"""`precision-time k8s check`: what stands in the way, a line per promise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from ..config import Config
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
@click.pass_context
def check(
    ctx: click.Context,
    config: Path | None,
    kubeconfig: str | None,
) -> None:
    """Say a line per promise: ok, or FAILED with what to do.

    Exit code 1 where a promise is not kept, 2 where an argument is invalid.
    """
    configuration = config_at(config)
    rules_of(configuration)
    promises = chain(
        [Promise("the configuration can be used")],
        () if kubeconfig is None else _cluster(kubeconfig, configuration),
    )
    if not say(promises):
        ctx.exit(FOUND_SOMETHING)


def _cluster(kubeconfig: str, config: Config) -> Iterator[Promise]:
    from .access import allowed

    yield from allowed(api_client(kubeconfig), config)
