"""The Python face of precision-time: ``from precision_time import predict_time``.

Names are looked up when they are first used, so that importing this package costs no numpy and no
torch. Only ``trace`` needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predictor.errors import PrecisionTimeError
    from predictor.estimate.api import predict_many, predict_phases, predict_time
    from predictor.estimate.plots import Predictions
    from predictor.estimate.prediction import Prediction
    from predictor.estimate.store import load_predictor
    from predictor.job.training_job import TrainingJob
    from predictor.measure.trace.tracer import trace

__all__ = ["PrecisionTimeError", "Prediction", "Predictions", "TrainingJob", "load_predictor"]
__all__ += ["predict_many", "predict_phases", "predict_time", "trace"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "predictor.measure.trace.tracer" if name == "trace" else "predictor.estimate.api"
    return globals().setdefault(name, getattr(import_module(module), name))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
