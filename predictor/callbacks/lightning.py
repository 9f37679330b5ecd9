"""The former name of ``predictor.integrations.lightning``."""

from ..integrations.lightning import PrecisionTimeCallback

__all__ = ["PrecisionTimeCallback"]
