"""`precision-time backtest`: what other time limits would have done to past jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import TraceError
from ..site.history.run import asked_value
from ..units import count, duration, percent, short
from .console import format_option, progress, show_json, show_rows, warn
from .filling import history_option, open_history
from .options import listed_options, predictor

if TYPE_CHECKING:
    from ..site.backtest.run import Backtest, Figures
    from ..site.replay import Pool


@click.command()
@history_option
@listed_options("backtest")
@format_option
def backtest(
    history: str | None,
    swf: Path | None,
    policies: str | None,
    pools: tuple[Pool, ...],
    default_limit_h: float,
    max_limit_h: float,
    order_weight: float,
    longest_delay_h: float,
    scheduler: str,
    slurm_conf: Path | None,
    depth: int,
    since: float | None,
    until: float | None,
    version: str | None,
    processors_per_gpu: float,
    jobs: int | None,
    form: str,
) -> None:
    """Replay past jobs under other time limits and compare kills, waste and waits.

    Jobs come from the history, or from --swf. Every policy gives each job a limit or a place in
    the queue; a simulator of the scheduler starts them. Its figures: docs/how-to/backtest.md.
    """
    from ..site.backtest.policies import POLICIES, policies_of
    from ..site.backtest.run import backtest as run
    from ..site.backtest.workload import HOUR_S, LimitBounds, workload_of_runs, workload_of_swf
    from ..site.history.swf import read_swf
    from ..site.replay import Policy, SlurmRules
    from ..site.similar.estimate import PhysicsView

    if history is not None and swf is not None:
        raise TraceError("two logs to replay: give one of --history and --swf")
    chosen = policies_of(POLICIES if policies is None else policies.split(","))
    bounds = LimitBounds(
        default_s=default_limit_h * HOUR_S,
        cap_s=max_limit_h * HOUR_S,
        order_weight=order_weight,
        order_bound_s=longest_delay_h * HOUR_S,
    )
    rules = SlurmRules()
    if slurm_conf is not None:
        rules = SlurmRules.of_config(slurm_conf.read_text(encoding="utf-8", errors="replace"))
    if swf is not None:
        log = read_swf(swf, processors_per_gpu=processors_per_gpu)
        work = workload_of_swf(log, pools=pools, bounds=bounds)
    else:
        with open_history(history, create=False) as store:
            from ..site.history.tables import Where

            runs = store.runs(Where(since_s=since, until_s=until))
            work = workload_of_runs(runs, pools=pools, bounds=bounds)
    named = any(asked_value(past.request.asked, "model") for past in work.past)
    with progress("backtest") as bar:
        found = run(
            work,
            chosen,
            queue=Policy(scheduler),
            depth=depth,
            slurm=rules,
            physics=PhysicsView(predictor(version)) if named else None,
            jobs=jobs or -1,
            tell=bar,
        )
    if form == "json":
        show_json(found.as_dict())
    else:
        show(found)


def show(found: Backtest) -> None:
    """The jobs in a few words, then a line of figures for each policy."""
    work = found.work
    gpus = ", ".join(f"{count(pool.gpus)} {pool.name}" for pool in work.pools)
    span_s = float(work.submit_s.max() - work.submit_s.min())
    played = found.scheduler
    settings = ", ".join(
        f"{k} {v:g}" for k, v in played.items() if isinstance(v, int | float) and v
    )
    click.echo(f"{count(len(work))} jobs, submitted within {duration(span_s)}, on {gpus}")
    click.echo(f"started by a simulated {played['name']}" + f" ({settings})" * bool(settings))
    if order := found.order:
        back = f"{order['weight']:g} x its estimate, at most {duration(order['longest_delay_s'])}"
        click.echo(f"  in an order, a job stands back {back}")
    for reason, number in work.skipped.items():
        click.echo(f"  skipped, {reason}: {count(number)}")
    if killed := int(work.censored.sum()):
        click.echo(f"  killed at their limit in the past, true length not known: {count(killed)}")
    click.echo()
    show_rows([_row(each.figures) for each in found.replayed])
    for text in found.warnings:
        warn(text)


def _row(figures: Figures) -> dict[str, str]:
    waits = (figures.wait_mean_s, figures.wait_median_s, figures.wait_p95_s, figures.wait_max_s)
    names = ("wait mean", "median", "95 %", "longest")
    waited = [duration(seconds) if seconds >= 1 else "none" for seconds in waits]
    return {
        "policy": figures.policy,
        "by us": percent(figures.predicted_share),
        "killed": percent(figures.kill_rate),
        "more kills": count(figures.extra_kills),
        "GPU-h unused": count(figures.unused_gpu_hours),
        **dict(zip(names, waited, strict=True)),
        "slowdown": short(figures.bounded_slowdown),
        "users longer": percent(figures.users_waiting_longer_share),
    }
