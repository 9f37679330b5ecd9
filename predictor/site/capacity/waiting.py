"""The queue at one moment: what runs, what waits, and draws of how long each still takes.

A run that is predicted is drawn from the quantiles of its prediction. One that is not is drawn from
the shares of their limits that past jobs used; without a limit, from their times. In a draw all err
in part together (``expected_starts.draw_levels``). Nothing ends before it is through: failures are
not foreseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ...estimate.prediction import Prediction
from ..expected_starts import draw_levels
from ..replay import Floats
from .configurations import KEY, Outlook, training_job
from .jobs import COLUMNS, HELD, PRIORITY, UNREAD, with_config

DRAWS = 40
# Where no past job tells: a job takes its limit; one without takes a day.
NO_PAST = np.ones(1)
NO_LIMIT_S = 86400.0
_LEVELS = (np.arange(DRAWS) + 0.5) / DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Jobs at ``at_s``: those that run (``start_s`` known), then those that wait, in their order.

    That is by priority where it is known, then by submission. ``held`` are the numbers of jobs
    that wait for a person to release them; they are not in the table. ``past_shares`` are wall
    time over limit of ended jobs, ``past_s`` their wall times.
    """

    table: pl.DataFrame
    at_s: float
    past_shares: Floats
    past_s: Floats
    held: tuple[str, ...] = ()

    @property
    def waits(self) -> Floats:
        """Which jobs (n,) wait, 1 or 0."""
        return self.table["start_s"].is_null().to_numpy().astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Seconds that each job still takes, in each draw: (n, DRAWS); what is known of each job."""

    seconds: Floats
    predictions: tuple[Prediction | None, ...]


def queue_at(frame: pl.LazyFrame, at_s: float) -> Queue:
    """The queue of a frame at a moment: jobs submitted before, that had not ended.

    Of ended jobs it tells what they used of their limits.
    """
    gpu_jobs = frame.select(*COLUMNS, *_of_queue(frame)).filter(
        (pl.col("gpus") >= 1) & (pl.col("submit_s") <= at_s) & ~UNREAD
    )
    there = gpu_jobs.filter(pl.col("end_s").is_null() | (pl.col("end_s") > at_s))
    started = pl.col("start_s") <= at_s
    table = (
        there.with_columns(start_s=pl.when(started).then("start_s"))
        .sort("start_s", -pl.col(PRIORITY), "submit_s", "job_id", nulls_last=True)
        .collect()
    )
    held = pl.col(HELD) & pl.col("start_s").is_null()
    wall = pl.col("end_s") - pl.col("start_s")
    past = (
        gpu_jobs.filter((pl.col("end_s") <= at_s) & (wall > 0))
        .select(wall_s=wall, share=wall / pl.col("limit_s"))
        .collect()
    )
    shares = past["share"].drop_nulls().to_numpy()
    return Queue(
        table=with_config(table.filter(~held)),
        at_s=at_s,
        held=tuple(table.filter(held)["job_id"]),
        past_shares=_quantiles(shares.clip(max=1.0), NO_PAST),
        past_s=_quantiles(past["wall_s"].to_numpy(), NO_PAST * NO_LIMIT_S),
    )


def _of_queue(frame: pl.LazyFrame) -> tuple[pl.Expr, ...]:
    """Priority and hold of each job; a history tells neither."""
    known = frame.collect_schema().names()
    priority = pl.col(PRIORITY) if PRIORITY in known else pl.lit(None, pl.Int64)
    held = pl.col(HELD) if HELD in known else pl.lit(None, pl.Boolean)
    return priority.fill_null(0).alias(PRIORITY), held.fill_null(False).alias(HELD)


def remaining(queue: Queue, outlook: Outlook) -> Remaining:
    """How long each job of the queue still takes."""
    found = _predicted(queue, outlook)
    places = (draw_levels(len(found), DRAWS) * DRAWS).astype(np.int64)
    steps_s: dict[int, Floats] = {}
    rows = []
    columns = queue.table.select("start_s", "limit_s", "steps").iter_rows()
    for one, place, (start_s, limit_s, stated) in zip(found, places, columns, strict=True):
        steps = stated if stated is not None else None if one is None else one.steps
        if one is None or steps is None:
            whole_s = _unknown_s(queue, limit_s)
        else:
            if id(one) not in steps_s:
                steps_s[id(one)] = np.array([one.quantile_s(level) for level in _LEVELS])
            whole_s = steps_s[id(one)] * steps
        rows.append(_left(whole_s, 0.0 if start_s is None else queue.at_s - start_s)[place])
    seconds = np.array(rows).reshape(len(rows), DRAWS)
    predictions = tuple(
        one if one is not None and (steps is not None or one.steps is not None) else None
        for one, steps in zip(found, queue.table["steps"], strict=True)
    )
    return Remaining(seconds=seconds, predictions=predictions)


def _predicted(queue: Queue, outlook: Outlook) -> tuple[Prediction | None, ...]:
    """The prediction of each job, like ones made once; None where it cannot be predicted."""
    keys = list(queue.table.select(KEY).iter_rows())
    jobs = {key: training_job(*key) if key[0] and key[1] else None for key in dict.fromkeys(keys)}
    outlook.of(job for job in jobs.values() if job is not None)
    found = {key: outlook(job) for key, job in jobs.items()}
    return tuple(found[key] for key in keys)


def _unknown_s(queue: Queue, limit_s: float | None) -> Floats:
    values = queue.past_s if limit_s is None else queue.past_shares * limit_s
    return np.quantile(values, _LEVELS)


def _left(whole_s: Floats, ran_s: float) -> Floats:
    """What is left of rising totals for a job that ran so long: of those that are longer.

    Where it has outlived all of them, it is taken to be as far as half of its life.
    """
    longer = whole_s[whole_s > ran_s]
    if not len(longer):
        return np.full(len(whole_s), ran_s)
    at = (np.arange(len(whole_s)) + 0.5) * len(longer) / len(whole_s)
    left: Floats = longer[at.astype(np.int64)] - ran_s
    return left


def _quantiles(values: Sequence[float] | Floats, otherwise: Floats) -> Floats:
    """At most a thousand of them, evenly spaced."""
    found = np.sort(np.asarray(values, dtype=np.float64))
    if not len(found):
        return otherwise
    kept: Floats = found[np.linspace(0, len(found) - 1, min(1000, len(found))).astype(np.int64)]
    return kept
