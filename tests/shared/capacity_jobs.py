"""Jobs for tests of the capacity report, as the table that a history gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st

from predictor.site.capacity.jobs import COLUMNS, NUMBERS, WHOLE

DAY_S = 86400.0
# A Monday, 00:00 UTC.
START_S = 1_736_121_600.0
TYPES = ("v100-sxm2-16gb", "a100-sxm4-80gb", "homemade-9000", None)
STATES = ("completed", "failed", "timeout", "cancelled", "preempted", "node_fail", "running")
SCHEMA = {
    name: pl.Int64 if name in WHOLE else pl.Float64 if name in NUMBERS else pl.String
    for name in COLUMNS
}


def job(**values: Any) -> dict[str, Any]:
    """One job that ran for the first hour of the first day on one GPU, but for ``values``."""
    usual: dict[str, Any] = {
        "scheduler": "slurm",
        "cluster": "c",
        "job_id": "1",
        "name": "train",
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "state": "completed",
        "submit_s": START_S,
        "start_s": START_S,
        "end_s": START_S + 3600,
        "limit_s": 7200.0,
        "gpus": 1,
        "gpu_type": "v100-sxm2-16gb",
        "nodes": 1,
        "asked": "",
        "limit_by": "user",
    }
    return usual | values


def frame(jobs: Sequence[dict[str, Any]]) -> pl.LazyFrame:
    """The jobs as a lazy table."""
    return pl.DataFrame(list(jobs), schema=SCHEMA).lazy()


@st.composite
def many_jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs of a few days, some of them beyond the edges, without limits or of unknown types."""
    found = []
    for number in range(draw(st.integers(0, 12))):
        submit = START_S + draw(st.floats(-2 * DAY_S, 6 * DAY_S))
        start = submit + draw(st.floats(0, DAY_S))
        found.append(
            job(
                job_id=str(number),
                submit_s=submit,
                start_s=start,
                end_s=start + draw(st.floats(0, 3 * DAY_S)),
                gpus=draw(st.integers(0, 64)),
                gpu_type=draw(st.sampled_from(TYPES)),
                state=draw(st.sampled_from(STATES)),
                user=draw(st.sampled_from(("ada", "", "<b>bob</b>"))),
                limit_s=draw(st.one_of(st.none(), st.floats(60, 9 * DAY_S))),
                limit_by=draw(st.sampled_from((None, "user", "default", "precision-time"))),
            )
        )
    return found
