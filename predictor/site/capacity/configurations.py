"""The distinct things that jobs of a period were, each predicted once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from ...errors import PrecisionTimeError
from ...estimate.core import Predictor
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text
from ...job.training_job import TrainingJob
from ...planning.cost import Terms, drawn_share, power_of
from .report_data import Range

# What makes two jobs alike; ``config`` is what was asked without the number of steps.
KEY = ("config", "gpu_type", "gpus", "nodes")
TAIL = 0.025
# Configurations priced in one pass of the predictor.
BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Jobs that asked for the same on the same GPUs: how many, what they took, who sent them."""

    config: str
    found: Prediction
    gpu_type: str
    scheduler: str
    users: tuple[str, ...]
    jobs: int
    hours: float

    @property
    def job(self) -> TrainingJob:
        """What they were."""
        return self.found.job


def training_job(config: str, gpu_type: str, gpus: int, nodes: int) -> TrainingJob | None:
    """The job on the GPUs it had; None where it is not a whole description."""
    try:
        stated = parse_text(config, "history").facts
        if not {"model", "precision"} <= stated.values.keys():
            return None
        return stated.job(gpu=gpu_type, gpus=gpus, gpus_per_node=-(-gpus // max(1, nodes)))
    except PrecisionTimeError:
        return None


class Outlook:
    """Predictions of jobs, each made once; None of those that cannot be predicted."""

    def __init__(self, model: Predictor) -> None:
        self._model = model
        self._found: dict[TrainingJob, Prediction | None] = {}

    def of(self, jobs: Iterable[TrainingJob]) -> None:
        """Predict those that are not yet known, many in one pass."""
        fresh = [job for job in dict.fromkeys(jobs) if job not in self._found]
        for at in range(0, len(fresh), BATCH):
            self._predict(fresh[at : at + BATCH])

    def __call__(self, job: TrainingJob | None) -> Prediction | None:
        """The prediction of one job."""
        if job is None:
            return None
        self.of([job])
        return self._found[job]

    def _predict(self, jobs: Sequence[TrainingJob]) -> None:
        try:
            self._found |= zip(jobs, self._model.predict_many(jobs), strict=True)
        except PrecisionTimeError:
            if len(jobs) == 1:
                self._found[jobs[0]] = None
                return
            half = len(jobs) // 2
            self._predict(jobs[:half])
            self._predict(jobs[half:])

    def __len__(self) -> int:
        return len(self._found)


def configurations(table: pl.DataFrame, outlook: Outlook, most: int) -> list[Configuration]:
    """The ``most`` configurations with the most GPU-hours, of those that can be predicted."""
    rows = (
        table.lazy()
        .filter(pl.col("config") != "")
        .group_by(KEY)
        .agg(
            pl.len().alias("jobs"),
            pl.col("hours").sum(),
            pl.col("user").unique().sort().alias("users"),
            pl.col("scheduler").first().fill_null(""),
        )
        .sort(["hours", *KEY], descending=[True, *[False] * len(KEY)])
        .head(most)
        .collect()
        .to_dicts()
    )
    jobs = [training_job(*(row[name] for name in KEY)) for row in rows]
    outlook.of(job for job in jobs if job is not None)
    found = [(row, outlook(job)) for row, job in zip(rows, jobs, strict=True)]
    return [
        Configuration(
            found=one,
            users=tuple(row.pop("users")),
            **{name: value for name, value in row.items() if name not in ("gpus", "nodes")},
        )
        for row, one in found
        if one is not None
    ]


def step_ratio(old: Prediction, new: Prediction) -> Range:
    """Time of a step of ``new`` over that of ``old``, with a central 95 % interval.

    Errors of the two are taken as independent: half widths in ln add as squares. Errors that two
    predictions of one model share cancel, so the interval errs on the wide side.
    """
    median = new.step_s / old.step_s
    new_up, new_down, old_up, old_down = (
        math.log(found.quantile_s(level) / found.step_s)
        for found in (new, old)
        for level in (1 - TAIL, TAIL)
    )
    up, down = math.hypot(new_up, old_down), math.hypot(new_down, old_up)
    return Range(low=median * math.exp(-down), median=median, high=median * math.exp(up))


def gpu_watts(found: Prediction, terms: Terms) -> float:
    """Mean watts of one GPU of the job at the meter of the site; see ``energy``."""
    return terms.tariff.overhead.watts(power_of(found.job.hardware).at(drawn_share(found)))
