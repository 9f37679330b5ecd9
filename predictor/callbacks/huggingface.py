"""The former name of ``predictor.integrations.huggingface``."""

from ..integrations.huggingface import PrecisionTimeCallback

__all__ = ["PrecisionTimeCallback"]
