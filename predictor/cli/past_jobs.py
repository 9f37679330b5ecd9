"""The jobs that `precision-time backtest` replays: of a history, or of an SWF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import TraceError
from .console import warn
from .filling import open_history
from .predictors import predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..site.backtest.workload import LimitBounds, Workload
    from ..site.replay import Pool


def pools_of(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> tuple[Pool, ...]:
    """The pools of ``NAME:GPUS`` and ``NAME:GPUS/GPUS_PER_NODE``; raises TraceError."""
    return tuple(_pool(text) for text in texts)


def _pool(text: str) -> Pool:
    from ..site.replay import Pool

    name, _, size = text.rpartition(":")
    gpus, _, per_node = size.partition("/")
    if not name or not gpus.isdecimal() or not (per_node or "1").isdecimal():
        raise TraceError(f"pool={text!r} is not possible: NAME:GPUS or NAME:GPUS/GPUS_PER_NODE")
    return Pool(name=name, gpus=int(gpus), gpus_per_node=int(per_node) if per_node else None)


def of_swf(
    path: Path, processors_per_gpu: float, pools: Sequence[Pool], bounds: LimitBounds
) -> Workload:
    """The jobs of an SWF file on one pool; raises TraceError."""
    from ..site.backtest.swf import workload_of_swf
    from ..site.history.swf import read_swf

    if len(pools) > 1:
        raise TraceError("an SWF file is replayed on one pool: give --pool once")
    return workload_of_swf(
        read_swf(path),
        processors_per_gpu=processors_per_gpu,
        pool=pools[0] if pools else None,
        bounds=bounds,
    )


def of_history(
    url: str,
    since: float | None,
    until: float | None,
    version: str | None,
    pools: Sequence[Pool],
    bounds: LimitBounds,
) -> Workload:
    """The runs of a history, those that say what they are predicted by a stored predictor."""
    from ..site.backtest.past import workload_of_runs

    with open_history(url, create=False) as store:
        from ..site.history.where import Where

        runs = store.runs(Where(since_s=since, until_s=until))
        return workload_of_runs(runs, predictor(version).predict, pools=pools, bounds=bounds)


def usual(work: Workload) -> tuple[str, ...]:
    """The policies to compare where none are named."""
    from ..site.backtest.policies import DEFAULT, ORACLE, POLICIES, USERS

    if any(found is not None for found in work.predictions):
        return POLICIES
    warn("no job says what it is: nothing is predicted, and only other limits are compared")
    return USERS, DEFAULT, ORACLE
