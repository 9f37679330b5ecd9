"""The jobs that `precision-time backtest` replays: of a history, or of an SWF file."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import TraceError
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
        raise TraceError(f"invalid pool={text!r}; expected NAME:GPUS or NAME:GPUS/GPUS_PER_NODE")
    return Pool(name=name, gpus=int(gpus), gpus_per_node=int(per_node) if per_node else None)


def of_swf(
    path: Path, processors_per_gpu: float, pools: Sequence[Pool], bounds: LimitBounds
) -> Workload:
    """The jobs of an SWF file on one pool, by default the machine of its header."""
    from ..site.backtest.past import workload_of_swf
    from ..site.history.swf import read_swf

    return workload_of_swf(
        read_swf(path), processors_per_gpu=processors_per_gpu, pools=pools, bounds=bounds
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

        loaded = cache(partial(predictor, version))  # only where a job says what it is
        return workload_of_runs(
            store.runs(Where(since_s=since, until_s=until)),
            lambda job: loaded().predict(job),
            pools=pools,
            bounds=bounds,
        )


def usual(work: Workload) -> tuple[str, ...]:
    """The policies to compare where none are named."""
    from ..site.backtest.policies import POLICIES, PREDICTED_POLICIES

    if any(found is not None for found in work.predictions):
        return tuple(dict.fromkeys((*POLICIES, *PREDICTED_POLICIES)))
    return POLICIES
