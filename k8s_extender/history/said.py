"""What our annotations say was predicted, read back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from predictor.site.history.run import Predicted
from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from ..admission.notes import BASIS, DURATION, P95, STEP
from ..durations import seconds_of
from ..plain import count

LEVEL = 0.95
_PAIR = re.compile(r"(\w+)=(\S+)")


def predicted(annotations: Mapping[str, str], filled_s: int | None) -> Predicted | None:
    """The prediction on an object, None without one; ``filled_s`` is the deadline we set.

    The user can change annotations: what cannot be read counts as absent.
    """
    step_s = _number(annotations.get(STEP, ""))
    median_s, upper_s = (seconds_of(annotations.get(name, "")) for name in (DURATION, P95))
    if step_s is None and median_s is None:
        return None
    basis = dict(_PAIR.findall(annotations.get(BASIS, "")))
    return Predicted(
        step_s=step_s,
        median_s=median_s,
        upper_s=upper_s,
        level=None if upper_s is None else LEVEL,
        gpu=gpu_called(basis.get("gpu")),
        gpus=count(basis, "gpus"),
        version=basis.get("predictor"),
        tier=basis.get("tier"),
        limit_s=None if filled_s is None else float(filled_s),
    )


def gpu_called(product: str | None) -> str | None:
    """The name that predictions use, or the same where no GPU is known by it."""
    try:
        return None if product is None else find_gpu(product).name
    except UnknownGpuError:
        return product


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
