"""The Python face: one function for one time, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

from ..errors import JobError
from ..errors import PrecisionTimeError as PrecisionTimeError
from ..graphs.catalog import entry_of
from ..job.phases import phases_of, with_first
from ..job.training_job import JOB_FIELDS, TrainingJob
from .core import Predictor
from .plots import Predictions
from .prediction import Prediction
from .store import load_predictor

# The GPU a one-line question means when it names none; the answer says so in its job.
DEFAULT_GPU = "a100-sxm4-80gb"


@cache
def _loaded() -> Predictor:
    return load_predictor()


def predict_time(
    model: str, precision: str, gpus: int = 1, *, gpu: str = DEFAULT_GPU, **job: Any
) -> Prediction:
    """Predict how long a training job takes.

    ``precision`` is a policy or an alias (``amp``, ``bf16-mixed``, ``tf32`` ...); ``job`` holds
    any other field of TrainingJob: ``batch_size`` (per GPU) or ``global_batch_size``, ``steps``
    or ``epochs``, ``seq_len``, ``framework`` ... Returns a Prediction: ``step_s`` and ``total_s``
    in seconds, ``interval(0.95)``, ``throughput`` in samples per second.

    Raises JobError, naming field, value and what is expected.
    """
    given = {"precision": precision, "gpus": gpus, "gpu": gpu, **job}
    for name, value in given.items():
        if isinstance(value, list) and name != "phases":
            raise JobError(name, value, "expected one value, no list: `predict_many` takes those")
    return predict_many(model, **given)[0]


def predict_many(model: str, **job: Any) -> Predictions:
    """Predict a job in several settings: each field given as a list takes each of its values.

    ``predict_many("bert-large", precision=["fp32", "amp"], gpus=[1, 2, 4, 8])`` is eight
    Predictions, the last field changing fastest. Fields are those of ``predict_time``; phases are a
    list of their own.

    Raises JobError, naming field, value and what is expected.
    """
    for name in job:
        if name not in JOB_FIELDS:
            raise JobError(name, job[name], f"not a field; fields are {', '.join(JOB_FIELDS)}")
    lists = {name: value for name, value in job.items() if isinstance(value, list)}
    varied = {name: value for name, value in lists.items() if name != "phases"}
    stated = {"gpu": DEFAULT_GPU, **job}
    each = [stated | dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    for fields in each:
        if isinstance(size := fields.get("image_size"), int):
            fields["image_size"] = entry_of(model).sized(size)
    asked = [TrainingJob(model=model, **fields) for fields in each]
    predictor = _loaded()
    for one in asked:
        predictor.check_source(one.source)
    return Predictions(predictor.predict_many(asked), tuple(varied))


def predict_phases(model: str, *phases: Mapping[str, Any], **job: Any) -> Prediction:
    """Predict a training that changes on its way, from its phases in their order.

    Each is a mapping of a length (``steps``, ``epochs`` or a ``share`` of those of the job) and of
    what it changes: ``precision``, ``batch_size``, ``seq_len`` ... ``job`` is as in
    ``predict_time``; precision and batch are those of the first phase where it has none. The
    Prediction is the sum, with that of each phase in ``phases``.

    Raises JobError, naming field, value and what is expected.
    """
    stated = with_first({**job, "phases": phases_of(phases)})
    if stated.get("precision") is None:
        raise JobError("precision", None, "name it for the job or in the first phase")
    return predict_time(model, **stated)
