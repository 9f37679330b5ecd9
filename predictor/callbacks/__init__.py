"""The former name of ``predictor.integrations``, which training scripts may still import."""

from ..integrations import TrainingLoop

__all__ = ["TrainingLoop"]
