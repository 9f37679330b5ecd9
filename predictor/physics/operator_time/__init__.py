"""Device time of operators, from measured tables."""

from .model import OperatorTimes

__all__ = ["OperatorTimes"]
