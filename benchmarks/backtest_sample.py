"""Backtests time limits on the generated sample, with predictions that never saw its runs.

Run as ``python benchmarks/backtest_sample.py --days 14 --tier site``.
benchmarks/README.md says what is drawn and what each tier may have seen. The fit takes a minute.
"""

from __future__ import annotations

import click
from sample_cluster.generate import POOLS, sample, workload_of_sample
from sample_cluster.out_of_sample import held_out_predictions

from predictor.cli.backtest import show
from predictor.cli.predictors import refit
from predictor.estimate.residual.novelty import Tier
from predictor.site.backtest.policies import PREDICTED_POLICIES, policies_of
from predictor.site.backtest.run import backtest
from predictor.site.replay import Policy

DEPTH = 500


@click.command()
@click.option("--days", type=float, default=14.0, show_default=True, help="Days of submissions.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw.")
@click.option(
    "--tier",
    type=click.Choice([Tier.RUN, Tier.CONFIGURATION, Tier.TABLE, Tier.SITE]),
    default=Tier.RUN,
    show_default=True,
    help="What the predictor may have seen of a job.",
)
def main(days: float, seed: int, tier: str) -> None:
    """Print what each policy would have done to the jobs of the sample."""
    fitted = refit()
    rows = [priced.measurement for priced in fitted.priced]
    drawn = sample(seed=seed, days=days, pools=POOLS, rows=rows)
    work = workload_of_sample(drawn, held_out_predictions(fitted, Tier(tier)))
    policies = policies_of(PREDICTED_POLICIES)
    show(backtest(work, policies, queue=Policy.EASY, depth=DEPTH))


if __name__ == "__main__":
    main()
