"""Words of the configuration that name something of ours: checked when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field

from predictor.errors import PrecisionTimeError
from predictor.job.fabrics import fabric_of
from predictor.job.precision import parse_precision
from profiles.errors import ProfileDataError
from profiles.gpus import find_gpu, gpus


def _known(meaning: Callable[[str], str]) -> AfterValidator:
    """Takes the words that ``meaning`` knows, and puts what they mean in their place."""

    def checked(word: str) -> str:
        try:
            return meaning(word)
        except (PrecisionTimeError, ProfileDataError) as error:
            raise ValueError(str(error)) from None

    return AfterValidator(checked)


def _fabric(word: str) -> str:
    fabric_of(next(iter(gpus().values())), word)
    return word


GpuName = Annotated[str, _known(lambda word: find_gpu(word).name)]
PrecisionName = Annotated[str, _known(lambda word: parse_precision(word).value)]
FabricName = Annotated[str, _known(_fabric)]
Price = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
