"""The Python face of precision-time: ``from precision_time import predict_time``.

Names are looked up in ``predictor.estimate.api`` when they are first used, so that importing this
package costs no numpy, no scikit-learn and no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predictor.estimate.api import (
        PrecisionTimeError,
        Prediction,
        TrainingJob,
        load_predictor,
        predict_phases,
        predict_time,
    )

__all__ = [
    "PrecisionTimeError",
    "Prediction",
    "TrainingJob",
    "load_predictor",
    "predict_phases",
    "predict_time",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from predictor.estimate import api

    return globals().setdefault(name, getattr(api, name))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
