"""The predictor and the site rules that a service decides by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..estimate import artifacts
from ..estimate.core import Predictor
from ..estimate.store import load_predictor
from ..identify.rules import Rules, read_rules


@dataclass(frozen=True, slots=True)
class LoadedPredictor:
    """A predictor and its version."""

    predictor: Predictor
    version: str


class PredictorLoader:
    """Loads predictors, and keeps the last as long as the same one is wanted.

    ``progress`` hears of a fit, which the first predictor of a machine may need.
    """

    def __init__(self, progress: Callable[[str, float], None] | None = None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._last: LoadedPredictor | None = None

    def load(self, version: str | None) -> LoadedPredictor:
        """The predictor of a version, of the one in use for None; raises ArtifactError."""
        with self._lock:
            wanted = version or artifacts.current()
            if self._last is None or wanted is None or wanted != self._last.version:
                predictor = load_predictor(version, self._progress)
                self._last = LoadedPredictor(predictor, version or artifacts.current() or "")
            return self._last


def rules_at(path: Path | None) -> Rules:
    """The site rules of a file, none without one; raises RulesError."""
    return Rules() if path is None else read_rules(path)
