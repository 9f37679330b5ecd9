"""The fitted predictor: physics, residual and intervals joined.

The way from a job to its time, each step where it is written:

1. what is asked, and the software it comes to: ``TrainingJob``, ``job.software.resolve``
2. what makes it fit its memory: ``physics.memory.as_it_runs``; examples as long as is likely:
   ``assumptions.as_priced``
3. its operators and their number formats: ``physics.job_graph``, ``physics.autocast``
4. seconds of all parts: ``OperatorTimes.price``, ``physics.collectives``, ``physics.optimizer``
5. one step of them: ``StepModel.price``, with ``physics.parallel`` where the model is split
6. what runs say of such sums: ``Residual.estimate``; what the job leaves open:
   ``assumptions_of``; how wrong both may be: ``intervals.factor``
7. all steps, or all phases: ``steps_of``, ``summed``
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

from numpy.typing import NDArray

from ..errors import JobError
from ..graphs.catalog import entry_of
from ..job.phases import of_any_length, parts_of
from ..job.precision import Precision
from ..job.software import known_options
from ..job.training_job import SITE_PREFIX, TrainingJob
from ..job.words import accepted
from ..physics.autocast import peak_flops
from ..physics.collectives import CollectiveTimes
from ..physics.operator_time import OperatorTimes
from ..physics.step import INPUT, StepModel, StepTime, input_s
from ..units import short
from .assumptions import Assumption, as_priced, assumptions_of, centred, of_length, ordered, widened
from .fits import on_a_card_that_holds_it
from .intervals import Intervals, factor
from .prediction import NO_DATA, Prediction, summed
from .residual.features import CATEGORIES, NUMBERS, Features, features
from .residual.model import Residual, ResidualEstimate
from .residual.novelty import Tier

SEEN_JOBS = 8192
# Tiers whose runs at the site settle what a job does not say of its software and its input.
SETTLED = (Tier.RUN, Tier.CONFIGURATION, Tier.COUNT)
# What a prediction counts measured runs of.
EVIDENCE: tuple[tuple[str, ...], ...] = (
    ("model",),
    ("model", "gpu"),
    ("model", "gpu", "precision"),
)
SENDS = attrgetter("sharding", "gpu", "fabric")
# What tells which card a site means by a name of several.
CARD = ("source", "gpu")


class Predictor:
    """Predicts jobs; immutable once made, safe to share between threads."""

    def __init__(self, steps: StepModel, residual: Residual, intervals: Intervals) -> None:
        self.steps = steps
        self.residual = residual
        self.intervals = intervals
        codes = residual.known.table.codes
        self._runs = {
            keys: Counter(map(tuple, codes[:, [CATEGORIES.index(k) for k in keys]].tolist()))
            for keys in (*EVIDENCE, CARD)
        }
        gpus = residual.known.table.numbers[:, NUMBERS.index("gpus")]
        self._most_gpus = round(math.exp(gpus.max())) if len(gpus) else 1
        self._seen = lru_cache(maxsize=SEEN_JOBS)(self._lasting)
        self._steps = lru_cache(maxsize=SEEN_JOBS)(lambda job: self.predict_many([job])[0])

    def predict(self, job: TrainingJob) -> Prediction:
        """Predict one job; raises JobError for an unknown model and GraphError without a graph."""
        return self._seen(job)

    def predict_many(self, jobs: Sequence[TrainingJob]) -> list[Prediction]:
        """Predict many jobs in one pass; a job in phases is their sum."""
        jobs = [on_a_card_that_holds_it(job) for job in jobs]
        parts = [parts_of(job) for job in jobs]
        plain = [one for job, of in zip(jobs, parts, strict=True) for one in of or (job,)]
        prices = [self.steps.price(as_priced(job)) for job in plain]
        rows = [features(job, step) for job, step in zip(plain, prices, strict=True)]
        estimates = self.residual.estimate(rows) if rows else []
        found = map(self._prediction, plain, prices, rows, estimates)
        return [
            summed(job, [next(found) for _ in of]) if of else next(found)
            for job, of in zip(jobs, parts, strict=True)
        ]

    def _lasting(self, job: TrainingJob) -> Prediction:
        """Of jobs that differ in their length alone one is priced."""
        job = on_a_card_that_holds_it(job)
        if (step := self._steps(of_any_length(job))).job == job:
            return step
        return replace(
            step,
            job=job,
            steps=steps_of(job),
            warnings=_warnings(job, step.tier, step.step_s / step.unstated),
            assumptions=ordered((*of_length(job), *step.assumptions)),
        )

    def check_source(self, source: str) -> None:
        """Raise JobError for a source without runs that is no site under its own name."""
        known = self.residual.vocabulary.sources
        if source and not source.startswith(SITE_PREFIX) and source not in known:
            raise JobError(
                "source", source, f"{accepted(source, known)}; leave it out for a new site"
            )

    def _prediction(
        self, job: TrainingJob, physical: StepTime, row: Features, estimate: ResidualEstimate
    ) -> Prediction:
        runs = as_priced(job)
        peak = peak_flops(job, tensor_cores=physical.tensor_core_s > 0)
        # no residual is faster than the hardware, nor than the samples come
        least_s = max(physical.flops / peak, input_s(job))
        correction = max(math.exp(estimate.mean), least_s / physical.step_s)
        step_s = float(physical.step_s * correction)
        tier, deviation = estimate.tier, estimate.deviation
        known = job.other_gpus and self._measured(row, CARD)
        assumed = assumptions_of(
            job.but(gpu=job.gpu) if known else job,
            partial(self._times_as_long, runs, physical),
            step_s=step_s,
            measured=tier in SETTLED,
            most_gpus=self._most_gpus,
        )
        times = math.exp(sum(one.centre for one in assumed))
        return Prediction(
            job=job,
            step_s=step_s * times,
            throughput=job.step_samples / step_s / times,
            steps=steps_of(job),
            physical=physical,
            correction=correction * times,
            deviation=deviation,
            tier=tier,
            evidence=(tier.meaning, *self._evidence(row)),
            warnings=_warnings(job, tier, step_s),
            factors=partial(_factor, self.intervals.scores[estimate.like], deviation, assumed),
            assumptions=assumed,
            unstated=times,
        )

    def _times_as_long(self, runs: TrainingJob, step: StepTime, other: TrainingJob) -> float:
        if SENDS(other) != SENDS(runs):  # so are messages and update
            return self.steps.price(other).step_s / step.step_s
        return self.steps.price_instead(runs, step, other) / step.step_s

    def _measured(self, row: Features, keys: tuple[str, ...]) -> int:
        """How many measured runs share these with a job."""
        values, columns = self.residual.vocabulary.values, map(CATEGORIES.index, keys)
        return self._runs[keys][tuple(values[i].get(row.categories[i], -1) for i in columns)]

    def _evidence(self, row: Features) -> list[str]:
        found = []
        for keys in EVIDENCE:
            count = self._measured(row, keys)
            found.append(f"{count} measured runs of the same {', '.join(keys)}")
            if not count:
                break
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers of the predictor, by name; see ``to_state`` for the rest."""
        parts = {"residual": self.residual.to_arrays(), "intervals": self.intervals.to_arrays()}
        return {f"{part}/{k}": v for part, arrays in parts.items() for k, v in arrays.items()}

    def to_state(self) -> dict[str, Any]:
        """What JSON holds of the predictor."""
        return {
            "operators": self.steps.operators.to_arrays(),
            "collectives": self.steps.collectives.to_arrays(),
            "residual": self.residual.to_state(),
        }

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> Predictor:
        """The inverse of ``to_arrays`` and ``to_state``."""

        def part(name: str) -> dict[str, NDArray[Any]]:
            start = f"{name}/"
            return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}

        steps = StepModel(
            OperatorTimes.from_arrays(state["operators"]),
            CollectiveTimes.from_arrays(state["collectives"]),
        )
        residual = Residual.from_stored(part("residual"), state["residual"])
        return cls(steps, residual, Intervals.from_arrays(part("intervals")))


def steps_of(job: TrainingJob) -> int | None:
    """Optimizer steps of the whole job: stated, or epochs times data set over global batch.

    None where it states no length, or epochs of nobody knows how many samples.
    """
    if parts := parts_of(job):
        steps = [steps_of(part) for part in parts]
        return None if None in steps else sum(n or 0 for n in steps)
    if job.steps is not None or job.epochs is None:
        return job.steps
    entry, size = entry_of(job.model), job.dataset_size
    if size is None and job.data is not None:
        size = job.data.samples_of(job.seq_len or entry.seq_len)
    elif size is None:
        size = entry.dataset_size  # of what the model is mostly trained on
    packs = job.software.packs and not (job.data and job.data.tokens)  # a text is cut
    share = (packs and as_priced(job).packed) or 1.0
    return None if size is None else max(1, math.ceil(job.epochs * size * share / job.step_samples))


def _factor(
    scores: NDArray[Any], deviation: float, assumed: Sequence[Assumption], level: float
) -> float:
    """The factor on the median of a quantile: by errors of runs, widened by what is assumed."""
    of_step = [one for one in assumed if not one.length]
    wide = widened(factor(scores, deviation, level), level, of_step)
    return centred(wide, level, sum(one.centre for one in assumed))


def _warnings(job: TrainingJob, tier: Tier, step_s: float) -> tuple[str, ...]:
    found = []
    gpu, input_bound_s = job.hardware, input_s(job)
    if job.precision is Precision.TF32 and "tf32" not in gpu.peak_flops:
        found.append(f"{gpu.product} has no TF32 tensor cores: priced as FP32")
    low = job.precision.activation_dtype.value
    if low in ("fp16", "bf16") and f"{low}_tensor" not in gpu.peak_flops:
        found.append(f"{gpu.product} has no {low} tensor cores: expect no gain over FP32")
    if math.isclose(input_bound_s, step_s):
        per_s = short(job.step_samples / job.data_parallel / step_s)
        found.append(f"a GPU waits for images: its workers decode about {per_s} a second")
    known, unfelt = known_options(), () if input_bound_s else INPUT
    if told := [key for key, _ in job.options if known[key].only_recorded or key in unfelt]:
        found.append(f"no price knows {', '.join(told)}: measured runs state it, and differ in it")
    if job.epochs is not None and steps_of(job) is None:
        found.append(NO_DATA.format(epochs=job.epochs))
    if tier is Tier.MODEL:
        found.append("this model was never measured: run a few steps and calibrate")
    return tuple(found)
