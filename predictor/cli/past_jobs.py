"""The jobs that `precision-time backtest` replays: of a history, an SWF file, or generated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import TraceError
from .console import warn
from .filling import open_history
from .predictors import predictor, refit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..site.backtest.workload import LimitBounds, Workload
    from ..site.history.run import Run
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

        runs = _no_samples(store.runs(Where(since_s=since, until_s=until)))
        return workload_of_runs(runs, predictor(version).predict, pools=pools, bounds=bounds)


def _no_samples(runs: Iterator[Run]) -> Iterator[Run]:
    from ..site.backtest.generate import CLUSTER

    warned = False
    for run in runs:
        if run.ended.cluster == CLUSTER and not warned:
            warned = True
            warn(
                "the history holds a generated sample, whose runs the predictor was fitted on: "
                "its predictions are too good; --generated predicts them out of sample"
            )
        yield run


def of_sample(
    seed: int,
    days: float,
    pools: Sequence[Pool],
    jobs_per_day: float | None,
    tier: str,
    bounds: LimitBounds,
) -> Workload:
    """A generated sample, predicted by a fit that never saw the run a job is drawn from."""
    from ..estimate.residual.novelty import Tier
    from ..site.backtest.generate import POOLS, sample, workload_of_sample
    from ..site.backtest.out_of_sample import held_out_predictions

    fitted = refit()
    found = sample(
        seed=seed,
        days=days,
        pools=pools or POOLS,
        jobs_per_day=jobs_per_day,
        rows=[priced.measurement for priced in fitted.priced],
    )
    return workload_of_sample(found, held_out_predictions(fitted, Tier(tier)), bounds)


def usual(work: Workload) -> tuple[str, ...]:
    """The policies to compare where none are named."""
    from ..site.backtest.policies import DEFAULT, ORACLE, POLICIES, USERS

    if any(found is not None for found in work.predictions):
        return POLICIES
    warn("no job says what it is: nothing is predicted, and only other limits are compared")
    return USERS, DEFAULT, ORACLE
