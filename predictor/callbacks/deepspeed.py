"""The former name of ``predictor.integrations.deepspeed``."""

from ..integrations.deepspeed import follow

__all__ = ["follow"]
