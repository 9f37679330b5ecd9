"""`precision-time evaluate`: predicts every row of a measurement file and scores the methods.

Each method is fitted once and asked for many rows.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import GraphError, JobError
from ..estimate.fitting import Fitted, fit_priced, price, targets
from ..estimate.measurement import Measurement, Row, Unreadable, parse, shipped
from ..estimate.residual.features import without_precision
from ..estimate.residual.model import HyperparameterSets
from ..graphs.catalog import entry_of
from ..job.training_job import TrainingJob
from ..physics.job_graph import job_graph
from ..physics.step import StepModel

METHODS = ("full", "physical", "paper", "blind")
CALIBRATE_BY = ("stack", "source", "model")
COLUMNS = ("id", "measured_s", "predicted_s", "ape", "lower_95", "upper_95", "tier", "reason")
EXCLUDED, CALIBRATION = "excluded", "calibration"
# Columns that together tell one run from another, where ids differ between files.
FINGERPRINT = (
    *("source_repo", "model", "gpu", "gpus", "precision", "batch_per_gpu", "framework"),
    *("global_batch", "seq_len", "throughput", "iteration_s", "total_s"),
)


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """One row of a measurement file: scored, or with the ``reason`` why not.

    Times are seconds of one optimizer step; ``ape`` is |predicted - measured| / measured.
    """

    id: str
    measured_s: float | None
    predicted_s: float | None
    lower_95: float | None
    upper_95: float | None
    tier: str
    reason: str
    row: Mapping[str, str]

    @property
    def ape(self) -> float | None:
        """Absolute percentage error as a ratio."""
        if self.predicted_s is None or self.measured_s is None or self.reason:
            return None
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def covered(self) -> bool | None:
        """Whether the measured time lies in the 95 % interval; None where there is none."""
        if self.ape is None or self.lower_95 is None or self.upper_95 is None:
            return None
        assert self.measured_s is not None
        return self.lower_95 <= self.measured_s <= self.upper_95

    def column(self, name: str) -> str:
        """A column of the file, or ``tier``, ``source`` or ``stack``."""
        if name == "tier":
            return self.tier
        parts = {"source": ["source_repo"], "stack": ["source_repo", "framework", "gpu"]}
        return "|".join(self.row.get(part, "") for part in parts.get(name, [name]))


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a set of outcomes as ratios; None where nothing was predicted.

    ``half_width_95_median`` is half the width of the 95 % interval over the prediction.
    """

    rows: int
    predicted: int
    skipped: Mapping[str, int]
    mape_mean: float | None
    mape_median: float | None
    p90: float | None
    coverage_95: float | None
    half_width_95_median: float | None


def score(outcomes: Sequence[RowOutcome]) -> Score:
    """Aggregate outcomes; every row is either predicted or counted under its reason."""
    errors = [o.ape for o in outcomes if o.ape is not None]
    covered = [o.covered for o in outcomes if o.covered is not None]
    widths = [
        (o.upper_95 - o.lower_95) / 2 / o.predicted_s
        for o in outcomes
        if o.covered is not None and o.upper_95 and o.lower_95 is not None and o.predicted_s
    ]
    return Score(
        rows=len(outcomes),
        predicted=len(errors),
        skipped=dict(Counter(o.reason for o in outcomes if o.reason)),
        mape_mean=float(np.mean(errors)) if errors else None,
        mape_median=float(np.median(errors)) if errors else None,
        p90=float(np.quantile(errors, 0.9)) if errors else None,
        coverage_95=float(np.mean(covered)) if covered else None,
        half_width_95_median=float(np.median(widths)) if widths else None,
    )


def score_by(outcomes: Sequence[RowOutcome], column: str) -> dict[str, Score]:
    """A score for each value of a column, largest groups first."""
    groups: dict[str, list[RowOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.column(column), []).append(outcome)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return {value: score(members) for value, members in ordered}


@dataclass(frozen=True, slots=True)
class MethodAnswer:
    """What a method says of one row; times in seconds, None where the method has none."""

    step_s: float | None
    lower_95: float | None = None
    upper_95: float | None = None
    tier: str = ""


# Predicts rows to be asked, the second list, given known runs of their own site, the first.
Method = Callable[[Sequence[Measurement], Sequence[Measurement]], list["MethodAnswer | Unreadable"]]


@dataclass(frozen=True, slots=True)
class MethodReport:
    """Scores of one method over one file."""

    method: str
    total: Score
    by: dict[str, dict[str, Score]]
    outcomes: tuple[RowOutcome, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the keys of the total, ``by`` and ``method``."""
        return asdict(self.total) | {
            "by": {
                column: {value: asdict(s) for value, s in scores.items()}
                for column, scores in self.by.items()
            },
            "method": self.method,
        }


def evaluate(
    rows: Sequence[Row],
    fitted: Fitted,
    *,
    methods: Sequence[str] = ("full",),
    by: Sequence[str] = (),
    calibrate: int = 0,
    calibrate_by: str = "stack",
    given: Sequence[Row] = (),
    seed: int = 0,
    exclude_ids: Collection[str] = (),
) -> list[MethodReport]:
    """Score each method on the rows of a file; every row is predicted or listed with a reason.

    A row without a time of a step is predicted too where its job is known, but not scored.

    ``calibrate`` rows of each group, and ``given``, the rows of another file, are given to the
    methods first and left out of the score.
    """
    keys = calibration_keys(calibrate_by)
    # Under their positions: a file may use an id twice, or none.
    parsed = [replace(item, id=str(i)) for i, item in enumerate(parse(rows))]
    readable = [m for m in parsed if isinstance(m, Measurement) and _id(m) not in exclude_ids]
    shown = {_fingerprint(row) for row in given}
    again = [m for m in readable if shown and _fingerprint(m.row) in shown]
    drawn = draw([m for m in readable if m not in again], calibrate, keys, seed)
    known = drawn + [m for m in parse(given) if isinstance(m, Measurement)]
    taken = {m.id for m in (*drawn, *again)}
    asked = [m for m in readable if m.id not in taken]
    asked += [
        Measurement(one.id, one.job, math.nan, one.job.source, one.row)
        for one in parsed
        if isinstance(one, Unreadable) and one.job is not None and _id(one) not in exclude_ids
    ]
    reports = []
    for name in methods:
        said = method_of(name, fitted)(known, asked)
        answers = {m.id: answer for m, answer in zip(asked, said, strict=True)}
        outcomes = tuple(_outcome(one, answers.get(one.id), taken, exclude_ids) for one in parsed)
        reports.append(
            MethodReport(name, score(outcomes), {c: score_by(outcomes, c) for c in by}, outcomes)
        )
    return reports


def calibration_keys(text: str) -> tuple[str, ...]:
    """The names of CALIBRATE_BY in a list with commas; raises JobError for any other."""
    keys = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in keys:
        if word not in CALIBRATE_BY:
            expected = f"expected one or more of {', '.join(CALIBRATE_BY)}, with commas"
            raise JobError("calibrate_by", word, expected)
    return keys


def draw(
    rows: Sequence[Measurement], count: int, by: Sequence[str], seed: int
) -> list[Measurement]:
    """``count`` random rows of each group: of one source, and alike in all that ``by`` names."""
    groups: dict[object, list[Measurement]] = {}
    for m in rows:
        parts = {"stack": m.stack, "source": m.source, "model": (m.source, m.job.model)}
        groups.setdefault(tuple(parts[key] for key in by), []).append(m)
    rng = np.random.default_rng(seed)
    drawn: list[Measurement] = []
    for members in groups.values():
        chosen = rng.permutation(len(members))[:count]
        drawn.extend(members[i] for i in sorted(chosen))
    return drawn


def _id(item: Measurement | Unreadable) -> str:
    return item.row.get("id", "")


def _outcome(
    item: Measurement | Unreadable,
    answer: MethodAnswer | Unreadable | None,
    taken: Collection[str],
    excluded: Collection[str],
) -> RowOutcome:
    measured_s = item.step_s if isinstance(item, Measurement) else None
    if _id(item) in excluded:
        measured_s, reason = None, EXCLUDED
    elif isinstance(item, Unreadable):
        reason = item.reason
    elif item.id in taken:
        reason = CALIBRATION
    else:
        reason = answer.reason if isinstance(answer, Unreadable) else ""
    found = answer if isinstance(answer, MethodAnswer) else MethodAnswer(None)
    times = (found.step_s, found.lower_95, found.upper_95)
    return RowOutcome(_id(item), measured_s, *times, found.tier, reason, item.row)


def leaked(rows: Sequence[Row]) -> list[Measurement]:
    """Shipped measurements that a file also holds, by id or by what they say."""
    ids = {row.get("id", "") for row in rows}
    prints = {_fingerprint(row) for row in rows}
    return [m for m in shipped() if m.id in ids or _fingerprint(m.row) in prints]


def _fingerprint(row: Row) -> tuple[str, ...]:
    return tuple(_plain(row.get(column, "")) for column in FINGERPRINT)


def _plain(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text.strip().lower()


def write_predictions(path: Path, outcomes: Sequence[RowOutcome]) -> None:
    """One CSV line a row of the file; empty where there is nothing to say."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for o in outcomes:
            values = (getattr(o, column) for column in COLUMNS)
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v or "" for v in values])


def all_methods(name: str) -> tuple[str, ...]:
    """The methods a ``--method`` value means."""
    if name == "all":
        return METHODS
    if name not in METHODS:
        raise JobError("method", name, f"expected one of {', '.join((*METHODS, 'all'))}")
    return (name,)


def method_of(name: str, fitted: Fitted) -> Method:
    """One of METHODS, made from a fitted predictor."""
    steps = fitted.predictor.steps
    if name == "full":
        return partial(_full, fitted, False)
    if name == "blind":
        return partial(_full, blind_of(fitted), True)
    if name == "physical":
        # The one number that plain physics is given: the median of measured over physical.
        factor = float(np.exp(np.median(targets(fitted.priced))))
        return partial(_scaled, lambda job: steps.price(job).step_s, factor)
    if name == "paper":
        return partial(_scaled, partial(paper_step_s, steps), 1.0)
    raise JobError("method", name, f"expected one of {', '.join(METHODS)}, all")


def _full(
    fitted: Fitted, blind: bool, known: Sequence[Measurement], asked: Sequence[Measurement]
) -> list[MethodAnswer | Unreadable]:
    """The product, fitted anew with the runs of the site; blind is the same without precision."""
    if known:
        steps = fitted.predictor.steps
        extra, _ = price(steps, known, blind=blind)
        fitted = fit_priced(steps, (*fitted.priced, *extra), hyper=_hyper(fitted))

    def ask(one: Measurement) -> MethodAnswer:
        found = fitted.predictor.predict(without_precision(one.job) if blind else one.job)
        interval = found.interval(0.95)
        return MethodAnswer(found.step_s, interval.low_s, interval.high_s, found.tier.value)

    return [_answered(ask, one) for one in asked]


def _scaled(
    price_s: Callable[[TrainingJob], float],
    factor: float,
    known: Sequence[Measurement],
    asked: Sequence[Measurement],
) -> list[MethodAnswer | Unreadable]:
    """A price times one factor: the global one, or the median of each stack with known runs."""
    ratios: dict[tuple[str, str, str], list[float]] = {}
    for one in known:
        with suppress(GraphError, JobError):
            ratios.setdefault(one.stack, []).append(one.step_s / price_s(one.job))
    factors = {stack: float(np.median(found)) for stack, found in ratios.items() if found}

    def ask(one: Measurement) -> MethodAnswer:
        return MethodAnswer(price_s(one.job) * factors.get(one.stack, factor))

    return [_answered(ask, one) for one in asked]


def _answered(
    ask: Callable[[Measurement], MethodAnswer], one: Measurement
) -> MethodAnswer | Unreadable:
    try:
        return ask(one)
    except (GraphError, JobError) as error:
        return Unreadable(one.id, str(error), one.row)


def blind_of(fitted: Fitted) -> Fitted:
    """The same design fitted to the same rows without any knowledge of precision."""
    steps = fitted.predictor.steps
    priced, _ = price(steps, [p.measurement for p in fitted.priced], blind=True)
    return fit_priced(steps, priced, hyper=_hyper(fitted))


def _hyper(fitted: Fitted) -> HyperparameterSets:
    residual = fitted.predictor.residual
    return HyperparameterSets(residual.known.hyper, residual.novel.hyper)


def paper_step_s(steps: StepModel, job: TrainingJob) -> float:
    """Seconds of one optimizer step by the method of arXiv 2604.16145.

    Operators at their actual number format, plus message volume over link bandwidth, plus the
    pipeline bubble. No host time, no overlap, no correction.
    """
    gpu = job.hardware
    graph = job_graph(job, entry_of(job.model))
    micro_step_s = float(steps.work(job, graph).seconds.sum()) / job.pipeline_parallel
    compute_s = micro_step_s * job.micro_steps
    bubble = (job.pipeline_parallel - 1) / job.micro_steps
    ranks = job.data_parallel
    dense = (graph.trainable_parameters - graph.sparse_parameters) / job.pipeline_parallel
    element = 4 if job.precision.mixed else job.precision.activation_dtype.bytes
    volume = 2 * (ranks - 1) / ranks * dense * element
    return compute_s * (1 + bubble) + volume / steps.collectives.link_bytes_per_s(
        gpu, job.nodes, job.fabric
    )
