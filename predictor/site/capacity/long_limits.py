"""Time limits much longer than the predicted run, and what planning would have gained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import polars as pl

from .configurations import KEY, Configuration
from .opportunities import MOST_ROWS, command_of, evidence_of, ranked
from .report_data import Opportunity, OpportunityKind, Range

# The limit that would have been set: this quantile of the predicted time, and a start-up.
QUANTILE = 0.99
STARTUP_S = 600.0
ROUNDING_S = 60.0
# A limit is too long from this many times what would have been set.
TOO_LONG = 2.0
_LIKE = ("model", "precision", "gpu_type", "gpus")


def long_limits(table: pl.DataFrame, found: Sequence[Configuration]) -> list[Opportunity]:
    """Completed jobs whose own limit was TOO_LONG, grouped; hours are those reserved for nothing.

    A job that the proposed limit would have killed counts as killed, and saves nothing.
    """
    if not found:
        return []
    long = _too_long(table, found)
    groups = long.group_by(_LIKE).agg(
        pl.len().alias("jobs"),
        pl.col("hours").sum(),
        pl.col("user").unique().sort(),
        pl.col("freed").filter(~pl.col("killed")).sum(),
        pl.col("killed").sum(),
        pl.col("at").sort_by("hours", descending=True).first(),
        pl.col("limit_s").median(),
        pl.col("proposed_s").median(),
    )
    rows = groups.sort(_LIKE).collect().to_dicts()
    return ranked(_row(row, found[row["at"]]) for row in rows)[:MOST_ROWS]


def _too_long(table: pl.DataFrame, found: Sequence[Configuration]) -> pl.LazyFrame:
    priced = pl.DataFrame(
        {
            "config": [one.config for one in found],
            "gpu_type": [one.gpu_type for one in found],
            "gpus": pl.Series([one.job.gpus for one in found], dtype=pl.Int64),
            "at": range(len(found)),
            "step_high_s": [one.found.quantile_s(QUANTILE) for one in found],
            "whole_steps": pl.Series([one.found.steps for one in found], dtype=pl.Int64),
        }
    ).unique(("config", "gpu_type", "gpus"), keep="first", maintain_order=True)
    mine = table.lazy().filter(
        (pl.col("outcome") == "completed")
        & pl.col("limit_s").is_not_null()
        & (pl.col("config") != "")
        & (pl.col("limit_by").fill_null("") != "precision-time")
    )
    wanted_s = STARTUP_S + pl.col("step_high_s") * pl.coalesce("steps", "whole_steps")
    return (
        mine.join(priced.lazy(), on=[name for name in KEY if name != "nodes"])
        .with_columns(proposed_s=(wanted_s / ROUNDING_S).ceil() * ROUNDING_S)
        .filter(pl.col("limit_s") > TOO_LONG * pl.col("proposed_s"))
        .with_columns(
            killed=pl.col("wall_s") > pl.col("proposed_s"),
            freed=pl.col("gpus") * (pl.col("limit_s") - pl.col("proposed_s")) / 3600,
        )
    )


def _row(row: Mapping[str, object], one: Configuration) -> Opportunity:
    limit_h, proposed_s = float(str(row["limit_s"])) / 3600, float(str(row["proposed_s"]))
    freed, users = float(str(row["freed"])), row["user"]
    assert isinstance(users, list)
    killed = f"; it would have killed {row['killed']} of them" if row["killed"] else ""
    return Opportunity(
        kind=OpportunityKind.SHORTER_LIMIT,
        what=f"{row['model']} {row['precision']} on {row['gpus']} x {row['gpu_type']}: "
        f"median limit {limit_h:.3g} h, {proposed_s / 3600:.2g} h would do",
        users=tuple(users),
        jobs=int(str(row["jobs"])),
        gpu_hours=float(str(row["hours"])),
        saved_gpu_hours=Range(low=freed, median=freed, high=freed),
        saved_cost=None,
        saved_kwh=None,
        saved_co2e_kg=None,
        evidence=f"{evidence_of(one.found)}; the limit is the {QUANTILE:.0%} quantile{killed}",
        command=_command(one, proposed_s),
    )


def _command(one: Configuration, limit_s: float) -> str:
    sent = command_of(one.config, {}, one.job.gpu, one.job.gpus, one.scheduler)
    if one.scheduler == "kubernetes":
        patch = json.dumps({"spec": {"activeDeadlineSeconds": round(limit_s)}})
        return f"kubectl patch job/NAME -p '{patch}'"
    return sent.replace("sbatch ", f"sbatch --time={limit_s / 60:.0f} ", 1)
