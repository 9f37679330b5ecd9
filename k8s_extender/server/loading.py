"""From a configuration to a brain that answers without delay: predictor loaded, memory warm."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from predictor.estimate import artifacts
from predictor.estimate.core import Predictor
from predictor.estimate.store import load_predictor
from predictor.identify.grammar import parse_text
from predictor.identify.rules import Rules, read_rules

from ..config import Config, read_config
from ..decide import NodeTable
from ..records import GpuType, PodJob
from .known import Brain, JobOf, Predicted

_log = logging.getLogger(__name__)

# Jobs of a convolutional network and a transformer: they touch every part of a prediction.
WARMING = (
    "model=resnet50 precision=amp batch=128 epochs=1",
    "model=bert-large precision=fp32 batch=8 steps=100",
)


def config_at(path: Path | None) -> Config:
    """The configuration of a file, all defaults without one; raises ConfigError."""
    return Config() if path is None else read_config(path)


def rules_of(config: Config) -> Rules:
    """The site rules that a configuration names; raises RulesError."""
    return Rules() if config.rules is None else read_rules(config.rules)


class Loader:
    """Makes brains; a predictor that stays the same is loaded once.

    Loading takes about a second, so it is done by a thread while answers go out.
    """

    def __init__(
        self, nodes: Callable[[], NodeTable], *, job_of: JobOf, predicted: Predicted
    ) -> None:
        self._nodes = nodes
        self._job_of = job_of
        self._predicted = predicted
        self._lock = threading.Lock()
        self._loaded: tuple[str, Predictor] | None = None

    def load(self, config: Config) -> Brain:
        """A warm brain for a configuration; raises RulesError and ArtifactError."""
        with self._lock:
            rules = rules_of(config)
            wanted = config.predictor_version or artifacts.current()
            if self._loaded is not None and wanted == self._loaded[0]:
                return self._brain(*self._loaded, config, rules)
            predictor = load_predictor(config.predictor_version)
            version = wanted or artifacts.current() or ""
            brain = self._brain(version, predictor, config, rules)
            warm(brain)
            self._loaded = (version, predictor)
            return brain

    def _brain(self, version: str, predictor: Predictor, config: Config, rules: Rules) -> Brain:
        return Brain(
            predictor,
            config,
            self._nodes,
            rules=rules,
            version=version,
            job_of=self._job_of,
            predicted=self._predicted,
        )


def settle() -> None:
    """Let go of a former predictor, and have collections pass over what the new one holds."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def warm(brain: Brain) -> None:
    """Predict once on every GPU type of the table, so that no pod waits for what comes first."""
    kinds: set[GpuType] = {node.type for node in brain.nodes().values() if node.type is not None}
    for text in WARMING:
        for policy in ("time", "reserve"):
            job = PodJob(
                stated=parse_text(text, "warming"), gpus_per_pod=1, scheduling_policy=policy
            )
            brain.warm(job, kinds)
