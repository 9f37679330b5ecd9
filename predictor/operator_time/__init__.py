"""Device time of operators, from measured tables."""

from .evaluate import OperatorEvaluation, evaluate_operator_times
from .model import OperatorTimes

__all__ = ["OperatorEvaluation", "OperatorTimes", "evaluate_operator_times"]
