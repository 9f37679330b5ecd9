"""`precision-time backtest`: what other time limits would have done to past jobs."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import TraceError
from ..units import count, duration, percent, short
from .console import format_option, show_json, show_table, warn
from .filling import history_option, open_history
from .options import MOMENT, pools_of
from .predictors import predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..site.backtest.figures import Figures
    from ..site.backtest.run import Backtest
    from ..site.backtest.workload import LimitBounds, Workload
    from ..site.replay import Pool


HEAD = (
    "policy",
    "by us",
    "killed",
    "more kills",
    "GPU-h unused",
    "wait mean",
    "median",
    "95 %",
    "longest",
    "slowdown",
    "users longer",
)


@click.command()
@history_option
@click.option(
    "--swf",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay a file in the Standard Workload Format, .gz or not.",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME,..",
    help="users, default, oracle; order@Q (short jobs first, by quantile Q of similar runs), "
    "order-users (by users' limits), history@Q (that quantile as limit); where jobs name their "
    "network ours@Q (predicted), fill@Q (where the user stated none).  "
    "[default: users,history@0.95,order@0.5,order-users,oracle, and the others where they apply]",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write CSV files.",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    callback=pools_of,
    metavar="NAME:GPUS[/PER_NODE]",
    help="GPUs there were; repeatable.  [default: the most ever in use at once, or MaxProcs of the "
    "SWF header]",
)
@click.option(
    "--default-limit-h",
    type=click.FloatRange(0, min_open=True),
    default=24.0,
    show_default=True,
    help="Hours of a job whose user stated no limit.",
)
@click.option(
    "--max-limit-h",
    type=click.FloatRange(0, min_open=True),
    default=8760.0,
    show_default=True,
    help="Hours of the longest limit.",
)
@click.option(
    "--scheduler",
    "--queue",
    "scheduler",
    type=click.Choice(("easy", "fifo", "slurm")),
    default="easy",
    show_default=True,
    help="Who starts waiting jobs: EASY backfill, nobody before another, or as slurmctld does.",
)
@click.option(
    "--slurm-conf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Slurm: what `scontrol show config` prints, for the interval and window of backfill, age "
    "and fair share.  [default: Slurm's, by age alone]",
)
@click.option(
    "--depth",
    type=click.IntRange(0),
    default=500,
    show_default=True,
    help="Waiting jobs that backfill looks at; bf_max_job_test of Slurm.",
)
@click.option("--since", type=MOMENT, help="History: runs that ended at or after this time.")
@click.option("--until", type=MOMENT, help="History: runs that ended before this time.")
@click.option("--version", help="History: stored predictor to use  [default: the one in use]")
@click.option(
    "--processors-per-gpu",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="SWF: processors that count as one GPU.",
)
@click.option(
    "--jobs", type=int, default=-1, show_default=True, help="Processes; -1 for one a core."
)
@format_option
def backtest(
    history: str | None,
    swf: Path | None,
    policies: str | None,
    output: Path | None,
    pools: tuple[Pool, ...],
    default_limit_h: float,
    max_limit_h: float,
    scheduler: str,
    slurm_conf: Path | None,
    depth: int,
    since: float | None,
    until: float | None,
    version: str | None,
    processors_per_gpu: float,
    jobs: int,
    form: str,
) -> None:
    """Replay past jobs under other time limits and compare kills, waste and waits.

    Jobs come from the history, or from --swf. Every policy gives each job a limit or a place in
    the queue; a simulator of the scheduler starts them. docs/how-to/backtest.md says what each
    figure means.
    """
    from ..site.backtest.policies import policies_of
    from ..site.backtest.run import backtest as run
    from ..site.backtest.workload import HOUR_S, LimitBounds
    from ..site.replay import Policy, SlurmRules

    if history is not None and swf is not None:
        raise TraceError("two logs to replay: give one of --history and --swf")
    chosen = None if policies is None else policies_of(policies.split(","))
    bounds = LimitBounds(default_s=default_limit_h * HOUR_S, cap_s=max_limit_h * HOUR_S)
    if swf is not None:
        work = of_swf(swf, processors_per_gpu, pools, bounds)
    else:
        work = of_history(history, since, until, version, pools, bounds)
    if chosen is None:
        chosen = policies_of(usual(work))
    rules = SlurmRules()
    if slurm_conf is not None:
        rules = SlurmRules.of_config(slurm_conf.read_text(encoding="utf-8", errors="replace"))
    found = run(work, chosen, queue=Policy(scheduler), depth=depth, slurm=rules, jobs=jobs)
    written = () if output is None else _written(found, output)
    if form == "json":
        show_json(_as_dict(found))
    else:
        show(found)
    if written:
        click.echo(f"wrote {', '.join(map(str, written))}", err=True)


def _written(found: Backtest, folder: Path) -> list[Path]:
    from ..site.backtest.run import write_tables

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_tables(found, folder)
    except OSError as error:
        raise TraceError(f"output={str(folder)!r} cannot be written: {error.strerror}") from error


def _as_dict(found: Backtest) -> dict[str, object]:
    work = found.work
    return {
        "jobs": len(work),
        "scheduler": found.scheduler,
        "pools": [
            {"name": p.name, "gpus": p.gpus, "gpus_per_node": p.gpus_per_node} for p in work.pools
        ],
        "skipped": dict(work.skipped),
        "killed_in_the_past": int(work.censored.sum()),
        "warnings": list(found.warnings),
        "policies": [each.figures.as_dict() for each in found.replayed],
    }


def show(found: Backtest) -> None:
    """The jobs in a few words, then a line of figures for each policy."""
    work = found.work
    gpus = ", ".join(f"{count(pool.gpus)} {pool.name}" for pool in work.pools)
    span_s = float(work.submit_s.max() - work.submit_s.min())
    played = found.scheduler
    settings = ", ".join(
        f"{k} {v:g}" for k, v in played.items() if isinstance(v, int | float) and v
    )
    click.echo(f"{count(len(work))} jobs of {duration(span_s)} on {gpus}")
    click.echo(f"started by a simulated {played['name']}" + f" ({settings})" * bool(settings))
    for reason, number in work.skipped.items():
        click.echo(f"  skipped, {reason}: {count(number)}")
    if killed := int(work.censored.sum()):
        click.echo(f"  killed at their limit in the past, true length not known: {count(killed)}")
    click.echo()
    show_table(HEAD, [_row(each.figures) for each in found.replayed])
    for text in found.warnings:
        warn(text)


def _row(figures: Figures) -> tuple[str, ...]:
    limits = figures.limits
    waits = (figures.wait_mean_s, figures.wait_median_s, figures.wait_p95_s, figures.wait_max_s)
    return (
        figures.policy,
        percent(limits.predicted_share),
        percent(limits.kill_rate),
        count(figures.extra_kills),
        count(limits.unused_gpu_hours),
        *map(_wait, waits),
        short(figures.bounded_slowdown),
        percent(figures.users_waiting_longer_share),
    )


def _wait(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "none"


def of_swf(
    path: Path, processors_per_gpu: float, pools: Sequence[Pool], bounds: LimitBounds
) -> Workload:
    """The jobs of an SWF file on one pool, by default the machine of its header."""
    from ..site.backtest.workload import workload_of_swf
    from ..site.history.swf import read_swf

    file = read_swf(path, processors_per_gpu=processors_per_gpu)
    return workload_of_swf(file, pools=pools, bounds=bounds)


def of_history(
    url: str | None,
    since: float | None,
    until: float | None,
    version: str | None,
    pools: Sequence[Pool],
    bounds: LimitBounds,
) -> Workload:
    """The runs of a history, those that say what they are predicted by a stored predictor."""
    from ..site.backtest.workload import workload_of_runs

    with open_history(url, create=False) as store:
        from ..site.history.tables import Where

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
