"""The methods that `evaluate` puts side by side, each fitted once and asked for many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import GraphError, JobError
from ..estimate.core import Predictor
from ..estimate.fitting import Fitted, Priced, fit_priced, price, price_parallel, targets
from ..estimate.measurement import Measurement, Unreadable
from ..estimate.residual.features import without_precision
from ..estimate.residual.model import HyperparameterSets
from ..graphs.catalog import entry_of
from ..job.training_job import TrainingJob
from ..physics.job_graph import job_graph
from ..physics.step import StepModel

METHODS = ("full", "physical", "paper", "blind")


@dataclass(frozen=True, slots=True)
class MethodAnswer:
    """What a method says of one row; times in seconds, interval only where the method has one."""

    step_s: float
    lower_95: float | None = None
    upper_95: float | None = None
    tier: str = ""


class Method(Protocol):
    """Predicts measurements, given some of their own site first."""

    def answer(
        self, known: Sequence[Measurement], asked: Sequence[Measurement]
    ) -> list[MethodAnswer | Unreadable]:
        """One answer per asked row; ``known`` are calibration runs the method may learn from."""


class Full:
    """The product: physics, residual, interval; ``blind`` is the same design without precision."""

    def __init__(self, fitted: Fitted, *, blind: bool = False) -> None:
        self._fitted = fitted
        self._blind = blind

    def answer(
        self, known: Sequence[Measurement], asked: Sequence[Measurement]
    ) -> list[MethodAnswer | Unreadable]:
        """Refits with the calibration runs as data of their own source."""
        fitted = self._fitted
        steps = fitted.predictor.steps
        if known:
            extra, _ = price(steps, known, blind=self._blind)
            fitted = fit_priced(steps, (*fitted.priced, *extra), hyper=_hyper(fitted))
        return [self._ask(fitted.predictor, m) for m in asked]

    def _ask(self, predictor: Predictor, asked: Measurement) -> MethodAnswer | Unreadable:
        job = without_precision(asked.job) if self._blind else asked.job
        try:
            found = predictor.predict(job)
        except (GraphError, JobError) as error:
            return Unreadable(asked.id, str(error), asked.row)
        interval = found.interval(0.95)
        return MethodAnswer(found.step_s, interval.low_s, interval.high_s, found.tier.value)


class Scaled:
    """A price times one factor: the global median of the fit, or of each calibrated stack."""

    def __init__(self, steps: StepModel, factor: float, *, paper: bool) -> None:
        self._steps = steps
        self._factor = factor
        self._paper = paper

    def _price(self, measurement: Measurement) -> float:
        if self._paper:
            return paper_step_s(self._steps, measurement.job)
        return self._steps.price(measurement.job).step_s

    def answer(
        self, known: Sequence[Measurement], asked: Sequence[Measurement]
    ) -> list[MethodAnswer | Unreadable]:
        """Prices each row; a calibrated stack has a factor of its own."""
        factors = self._calibrated(known)
        found: list[MethodAnswer | Unreadable] = []
        for m in asked:
            try:
                found.append(MethodAnswer(self._price(m) * factors.get(m.stack, self._factor)))
            except (GraphError, JobError) as error:
                found.append(Unreadable(m.id, str(error), m.row))
        return found

    def _calibrated(self, known: Sequence[Measurement]) -> Mapping[tuple[str, str, str], float]:
        ratios: dict[tuple[str, str, str], list[float]] = {}
        for m in known:
            try:
                ratios.setdefault(m.stack, []).append(m.step_s / self._price(m))
            except (GraphError, JobError):
                continue
        return {stack: float(np.median(r)) for stack, r in ratios.items()}


def blind_of(fitted: Fitted) -> Fitted:
    """The same design fitted to the same rows without any knowledge of precision."""
    steps = fitted.predictor.steps
    priced, _ = price_parallel(steps, [p.measurement for p in fitted.priced], blind=True)
    return fit_priced(steps, priced, hyper=_hyper(fitted))


def _hyper(fitted: Fitted) -> HyperparameterSets:
    residual = fitted.predictor.residual
    return HyperparameterSets(residual.known.hyper, residual.novel.hyper)


def method_of(name: str, fitted: Fitted) -> Method:
    """One of METHODS, made from a fitted predictor."""
    steps = fitted.predictor.steps
    if name == "full":
        return Full(fitted)
    if name == "blind":
        return Full(blind_of(fitted), blind=True)
    if name == "physical":
        return Scaled(steps, median_factor(fitted.priced), paper=False)
    if name == "paper":
        return Scaled(steps, 1.0, paper=True)
    raise JobError("method", name, f"expected one of {', '.join(METHODS)}, all")


def median_factor(priced: Sequence[Priced]) -> float:
    """Median of measured over physical: the one number plain physics is given."""
    return float(np.exp(np.median(targets(priced))))


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
