"""Expected starts beside true ones, on a real log replayed as slurmctld would.

Run as ``python benchmarks/expected_starts.py profiles/samples/graham.csv.gz --gpus 92``. At moments
drawn at random, every waiting job is told its start by the runs that had ended; the same by users'
limits, as slurmctld tells it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from estimates import moments

from predictor.site.capacity.live import Live, LiveJob
from predictor.site.expected_starts import DRAWS, HIGH, LOW, drawn_s, estimated, replayed
from predictor.site.history.accounting_table import AccountingTable
from predictor.site.history.run import Run
from predictor.site.replay import Floats, Policy, Pool, SlurmRules, Trace, replay
from predictor.site.similar.estimate import estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun

LEAST_WAIT_S, LEAST_S = 60.0, 30.0
DAY_S = 86_400.0


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--gpus", type=int, required=True, help="GPUs there are.")
@click.option("--per-node", type=int, default=4, show_default=True, help="GPUs of a node.")
@click.option("--days", type=float, default=1e4, help="Only jobs of the first days.")
@click.option("--moments", "count", type=int, default=10, show_default=True, help="How many.")
@click.option("--bf-interval", type=float, default=30.0, show_default=True, help="Seconds.")
def main(
    table: Path, gpus: int, per_node: int, days: float, count: int, bf_interval: float
) -> None:
    """Print the share of starts within a factor of 2, and of those in their range."""
    pool = Pool(name="gpu", gpus=gpus, gpus_per_node=per_node)
    source = AccountingTable(table, "table")
    items = (PastRun.of(item) for item in source if isinstance(item, Run))
    runs = sorted((run for run in items if run is not None), key=lambda run: run.submit_s)
    last_s = runs[0].submit_s + days * DAY_S
    runs = [run for run in runs if run.submit_s < last_s and run.request.gpus <= gpus]
    found = defaultdict(list)
    for way, real, told in compared(runs, pool, count, SlurmRules(bf_interval_s=bf_interval)):
        waits = real >= LEAST_WAIT_S
        found[way].append(np.column_stack([real, told])[waits])
    for way, rows in found.items():
        real, told = np.vstack(rows)[:, 0], np.vstack(rows)[:, 1:]
        half = np.median(told, axis=1)
        low, high = np.quantile(told, (LOW, HIGH), axis=1)
        near = np.mean((half >= real / 2) & (half <= 2 * real))
        inside = np.mean((real >= low) & (real <= high))
        click.echo(
            f"{way:16} {len(real):6,} waiting: {near:6.1%} within a factor of 2, "
            f"{inside:6.1%} in the range, said / real {np.median(half / real):.2f}"
        )


def compared(
    runs: list[PastRun], pool: Pool, count: int, rules: SlurmRules
) -> Iterator[tuple[str, Floats, Floats]]:
    """(who tells, real waits (m,), told waits (m, draws)) at each moment, in seconds."""
    submit_s = np.array([run.submit_s for run in runs])
    run_s = np.array([run.run_s for run in runs])
    limit_s = np.maximum([run.request.limit_s or DAY_S for run in runs], run_s)
    gpus = np.array([run.request.gpus for run in runs], dtype=np.int64)
    trace = Trace(submit_s=submit_s, gpus=gpus, limit_s=limit_s, run_s=run_s[:, None])
    start_s = replay(trace, [pool], policy=Policy.SLURM, slurm=rules).start_s
    ended = [
        replace(run, end_s=float(begin + run.run_s))
        for run, begin in zip(runs, start_s, strict=True)
    ]
    first_s, last_s = np.quantile(submit_s, (0.1, 0.95)).tolist()
    at_s = iter(np.sort(np.random.default_rng(1).uniform(first_s, last_s, count)).tolist())
    now_s, memory, told = next(at_s), SiteMemory(), {}
    for moment_s, submitted, at in moments(ended):
        while moment_s > now_s:
            yield from _at(now_s, ended, start_s, limit_s, pool, memory)
            now_s = next(at_s, np.inf)
        if submitted:
            told[at] = memory.recall(runs[at].request).times
        else:
            memory.add(ended[at], told.pop(at))


def _at(
    now_s: float,
    runs: list[PastRun],
    start_s: Floats,
    limit_s: Floats,
    pool: Pool,
    memory: SiteMemory,
) -> Iterator[tuple[str, Floats, Floats]]:
    rows = [at for at, run in enumerate(runs) if run.submit_s <= now_s and run.end_s > now_s]
    begun = [float(start_s[at]) if start_s[at] <= now_s else None for at in rows]
    waits = np.array([start is None for start in begun], dtype=bool)
    if not waits.any():
        return
    jobs = tuple(
        LiveJob(
            job_id=str(at),
            request=replace(runs[at].request, gpu_type=pool.name),
            submit_s=runs[at].submit_s,
            start_s=begin,
            limit_s=float(limit_s[at]),
        )
        for at, begin in zip(rows, begun, strict=True)
    )
    live = Live(scheduler="slurm", cluster="", at_s=now_s, jobs=jobs, pools=(pool,))
    ran_s = np.array([0.0 if begin is None else now_s - begin for begin in begun])
    now = deepcopy(memory)  # which takes in what runs at this moment alone
    estimates = estimated(live, now, lambda job: estimate_job(job.request, now))
    left_s = drawn_s(live, estimates).clip(LEAST_S)
    real_s = (start_s[rows] - now_s)[waits]
    yield "our estimates", real_s, replayed(live, left_s, live.pools).start_s[waits]
    by_limit_s = np.tile((limit_s[rows] - ran_s)[:, None], (1, DRAWS))
    slurm = replayed(live, by_limit_s[:, :1], live.pools, policy=Policy.SLURM).start_s[waits]
    yield "users' limits", real_s, np.tile(slurm, (1, DRAWS))


if __name__ == "__main__":
    main()
