"""Predictions for a job on every GPU type it may land on."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from predictor.errors import PrecisionTimeError
from predictor.estimate.core import Predictor
from predictor.estimate.fits import Fit, fits
from predictor.estimate.prediction import Prediction
from predictor.identify.stated import Stated
from predictor.job.training_job import JOB_FIELDS, TrainingJob
from predictor.site.calibration.run_reader import site_source

from .config import SlurmPolicy
from .nodes import CandidateNodes, GpuRequest, name_of

MAX_KNOWN = 16_384  # each prediction by what is stated and by what that comes to
Fields = frozenset[tuple[str, Any]]
# What is stated, the job it comes to, a prediction or why there is none, and whether it fits.
Made = tuple[Fields, TrainingJob | None, Prediction | str, Fit | None]
# The keys that one is known by, and itself, pickled: most are never asked for again.
Sent = tuple[tuple[object, ...], bytes]
_values = attrgetter(*JOB_FIELDS, "other_gpus")


class UnknownYetError(Exception):
    """Nothing was predicted of this job so far."""


def make(predictor: Predictors, fields: Fields) -> Made:
    """What a predictor says of the job with these fields."""
    if isinstance(predictor, MadeBefore | Remembering):
        return predictor(fields)
    job = None
    try:
        job = TrainingJob(**dict(fields))
        found = predictor.predict(job)
    except PrecisionTimeError as error:
        return fields, job, str(error), None
    try:
        return fields, job, found, fits(found.job, margin=0.0)
    except PrecisionTimeError:
        return fields, job, found, None


class MadeBefore:
    """Answers with predictions that were made elsewhere; no job is built of what is known."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, Made | bytes] = OrderedDict()

    def __call__(self, fields: Fields) -> Made:
        """What is known of a job; raises JobError where it is none, else UnknownYetError."""
        key = fields if fields in self._known else _values(TrainingJob(**dict(fields)))
        if (found := self._known.get(key)) is None:
            raise UnknownYetError
        if isinstance(found, bytes):
            found = self._known[key] = pickle.loads(found)
        return found

    def take(self, sent: Sequence[Sent]) -> None:
        """Know more."""
        known = self._known
        known |= {key: made for keys, made in sent for key in keys if key not in known}
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class Remembering:
    """A predictor whose predictions can be told to others."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._made: list[Made] = []

    def __call__(self, fields: Fields) -> Made:
        """Predict one job."""
        self._made.append(make(self._predictor, fields))
        return self._made[-1]

    def made(self) -> tuple[Sent, ...]:
        """Those since this was last asked."""
        made, self._made = self._made, []
        keys = (one[:1] if one[1] is None else (one[0], _values(one[1])) for one in made)
        return tuple(zip(keys, map(pickle.dumps, made), strict=True))


Predictors = Predictor | MadeBefore | Remembering


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPredictions:
    """One prediction for each GPU type, or why there is none.

    ``fits`` say whether their memory suffices, ``labels`` are the GPUs as the cluster calls them.
    ``reason`` is a word for the log, ``advice`` a clause for the user; both are empty where there
    are predictions. ``doubt`` is a clause that says why no limit may rest on them.
    """

    predictions: tuple[Prediction, ...] = ()
    fits: tuple[Fit, ...] = ()
    labels: tuple[str, ...] = ()
    reason: str = ""
    advice: str = ""
    doubt: str = ""


def estimate(
    predictor: Predictors,
    policy: SlurmPolicy,
    wanted: GpuRequest,
    stated: Stated,
    found: Sequence[CandidateNodes],
) -> JobPredictions:
    """Predict the job on each GPU type among ``found``; never raises for what a user stated."""
    lacking = _lacking(stated, policy, wanted, found)
    if lacking is not None:
        return JobPredictions(reason=lacking[0], advice=lacking[1])
    predictions: list[Prediction] = []
    fitting: list[Fit] = []
    refusal = ""
    for gpu in {c.gpu.name: c.gpu for c in found if c.gpu is not None}.values():
        try:
            fields = _fields(stated, policy, wanted, [c for c in found if c.gpu is gpu])
            *_, said, fit = make(predictor, fields)
        except PrecisionTimeError as error:
            said = str(error)
        if isinstance(said, str):
            refusal = said  # a GPU that cannot run the job does not count, if another can
        else:
            predictions.append(said)
            fitting += [] if fit is None else [fit]
    if not predictions:
        return JobPredictions(reason="not-predictable", advice=refusal)
    over = stated.values.get("gpus", 0) > wanted.gpus and "the script puts the gpus in doubt"
    each = wanted.gpus // (wanted.nodes or 1)
    return JobPredictions(
        predictions=tuple(predictions),
        fits=tuple(fitting),
        labels=tuple(dict.fromkeys(c.label for c in found)),
        doubt=over or stated.doubtful or stated.misfit(wanted.gpus, wanted.gpus_per_node, each),
    )


def _lacking(
    stated: Stated, policy: SlurmPolicy, wanted: GpuRequest, found: Sequence[CandidateNodes]
) -> tuple[str, str] | None:
    """What keeps a job from being predicted, as JobPredictions has it."""
    values, unknown = stated.values, sorted({c.label for c in found if c.gpu is None})
    misread = any(problem.field == "precision" for problem in stated.problems)
    assumed = not misread and (stated.trainer or policy.limits.assumed_precision)
    if wanted.shared:
        return "shared-gpus", "shares of a GPU are not predicted"
    if stated.unknown_model is not None:
        return "unknown-model", ""  # of its problems one names it
    if stated.model is None:
        return "no-model", ""
    if "batch_size" not in values and "global_batch_size" not in values:
        return "no-batch", "`#PT batch=` (samples per GPU) would tell the run time"
    if "precision" not in values and not assumed:
        return "no-precision", "`#PT precision=` would tell the run time"
    if not found:
        return "no-nodes", "no node with these GPUs is known"
    return ("unknown-gpu", f"GPU {', '.join(unknown)} is not known") if unknown else None


def _fields(
    stated: Stated, policy: SlurmPolicy, wanted: GpuRequest, nodes: Sequence[CandidateNodes]
) -> Fields:
    # GPUs of one node where Slurm chooses: as few nodes as the request and the nodes allow.
    spread = min(max(c.count for c in nodes), -(-wanted.gpus // (wanted.nodes or 1)))
    given: dict[str, Any] = {
        "precision": None if stated.trainer else policy.limits.assumed_precision,
        "gpus": wanted.gpus,
        "gpus_per_node": wanted.gpus_per_node or max(1, spread),
        "fabric": policy.hardware.fabric,
        "source": site_source(policy.site),
    }
    gpu = nodes[0].gpu
    assert gpu is not None
    name = name_of(gpu, nodes[0].label, policy.hardware)
    stated = replace(stated, values=dict(stated.values) | {"gpu": name})
    return frozenset(stated.job_fields(**given).items())
