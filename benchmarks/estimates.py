"""Errors of estimates on a real log, beside those of what else one could do.

Run as ``python benchmarks/estimates.py profiles/samples/graham.csv.gz``. Every job is estimated at
its submission from the runs that had ended. The baselines: the user's limit; the mean of the
user's last two runs (Tsafrir, Etsion and Feitelson, IEEE TPDS 18, 2007); the median of the user's
last 32; and quantile gradient boosting of the request and the user's past, fitted anew every four
days.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from predictor.site.history.accounting_table import AccountingTable
from predictor.site.history.run import Run
from predictor.site.similar.estimate import Estimate, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun

Floats = NDArray[np.float64]
LATEST = 32
REFIT_S, LEAST_ROWS = 4 * 86_400.0, 500
LEVEL = 0.95


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--boosting", is_flag=True, help="Fit that baseline too; needs scikit-learn.")
def main(table: Path, boosting: bool) -> None:
    """Print the median error of each way, and how often the 95 % quantile was too short."""
    source = AccountingTable(table, "table")
    items = (PastRun.of(item) for item in source if isinstance(item, Run))
    runs = sorted((run for run in items if run is not None), key=lambda run: run.submit_s)
    began_s = time.process_time()
    found = list(estimates(runs))
    took_s = time.process_time() - began_s
    run_s = np.array([run.run_s for run in runs])
    limit_s = np.array([run.request.limit_s or np.nan for run in runs])
    past = user_past(runs)
    ways = {
        "similar runs": np.array([each.quantile_s(0.5) for each in found]),
        "user's limit": limit_s,
        "mean of the user's last two": np.fmin(np.exp(past[:, 0]), limit_s),
        "median of the user's last 32": np.fmin(np.exp(past[:, 1]), limit_s),
    }
    if boosting:
        ways["gradient boosting"] = np.fmin(boosted(runs, past), limit_s)
    for name, said_s in ways.items():
        said_s = np.where(np.isnan(said_s), limit_s, said_s)
        if np.isnan(said_s).all():
            continue
        error = np.nanmedian(np.abs(said_s / run_s - 1))
        click.echo(
            f"{name:30} median error {error:6.1%}  in {np.isfinite(said_s).mean():.0%} of jobs"
        )
    upper_s = np.array([each.quantile_s(LEVEL) for each in found])
    click.echo(f"longer than the {LEVEL:.0%} quantile: {np.mean(run_s > upper_s):.1%} of jobs")
    click.echo(f"{len(runs):,} jobs, {1e6 * took_s / len(runs):.0f} us of CPU each")


def moments(runs: Sequence[PastRun]) -> Iterator[tuple[float, int, int]]:
    """(time, 1 for a submission and 0 for an end, row), as time went."""
    submitted = [(run.submit_s, 1, at) for at, run in enumerate(runs)]
    ended = [(run.end_s, 0, at) for at, run in enumerate(runs)]
    yield from sorted(submitted + ended)


def estimates(runs: Sequence[PastRun]) -> Iterator[Estimate]:
    """The estimate of each run at its submission, in that order."""
    memory, told = SiteMemory(), {}
    for _, submitted, at in moments(runs):
        if submitted:
            told[at] = estimate_job(runs[at].request, memory)
            yield told[at]
        else:
            memory.add(runs[at], told.pop(at).times)


def user_past(runs: Sequence[PastRun]) -> Floats:
    """Of each run (n, 3) by its user's ended ones: ln mean of two, ln median of 32, how many."""
    past: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST))
    found = np.full((len(runs), 3), np.nan)
    for _, submitted, at in moments(runs):
        theirs = past[runs[at].request.user]
        if not submitted:
            theirs.append(runs[at].run_s)
        elif theirs:
            last = list(theirs)
            found[at] = np.log(np.mean(last[-2:])), np.log(np.median(last)), len(last)
    return found


def boosted(runs: Sequence[PastRun], past: Floats) -> Floats:
    """The median by scikit-learn's boosting, fitted to what had ended; NaN before the first."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    asked = [run.request for run in runs]
    numbers = [
        (job.limit_s or 0.0, job.gpus, job.cpus or 0, job.memory_bytes or 0) for job in asked
    ]
    table = np.column_stack([past, np.array(numbers, dtype=np.float64)])
    ln_run = np.log([run.run_s for run in runs])
    submit_s = np.array([run.submit_s for run in runs])
    end_s = np.array([run.end_s for run in runs])
    said_s = np.full(len(runs), np.nan)
    for begin_s in np.arange(submit_s[0], submit_s[-1] + 1, REFIT_S):
        rows = (submit_s >= begin_s) & (submit_s < begin_s + REFIT_S)
        known = end_s <= begin_s
        if rows.any() and known.sum() >= LEAST_ROWS:
            model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5)
            model.fit(table[known], ln_run[known])
            said_s[rows] = np.exp(model.predict(table[rows]))
    return said_s


if __name__ == "__main__":
    main()
