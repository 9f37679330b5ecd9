"""From a configuration to a decider that answers without delay: predictor loaded, memory warm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from predictor.identify.grammar import parse_text
from predictor.identify.rules import Rules
from predictor.service.loading import LoadedPredictor, PredictorLoader, rules_at
from predictor.site.calibration.site_state import read_state

from ..config import Config, read_config
from ..decide import Decider
from ..estimate import TypeEstimate
from ..expected import SiteEstimates
from ..records import GpuType, PodJob
from ..type_index import NodeTable

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
    return rules_at(config.rules)


class DeciderLoader:
    """Makes deciders; a predictor that stays the same is loaded once.

    Loading takes about a second, so it is done by a thread while answers go out.
    """

    def __init__(
        self, nodes: Callable[[], NodeTable], predicted: Callable[[TypeEstimate], None]
    ) -> None:
        self._nodes = nodes
        self._predicted = predicted
        self._predictors = PredictorLoader()
        self._warm: LoadedPredictor | None = None

    def load(self, config: Config) -> Decider:
        """A warm decider for a configuration; raises RulesError and ArtifactError."""
        rules = rules_of(config)
        loaded = self._predictors.load(config.predictor_version)
        site = SiteEstimates(read_state().memory, loaded.predictor, config.site)

        def made(predicted: Callable[[TypeEstimate], None]) -> Decider:
            return Decider(
                loaded.predictor,
                config,
                self._nodes,
                rules=rules,
                version=loaded.version,
                predicted=predicted,
                site=site,
            )

        if loaded is not self._warm:
            warm(made(lambda estimate: None))
            self._warm = loaded
        return made(self._predicted)


def warm(decider: Decider) -> None:
    """Predict once on every GPU type of the table, so that no pod waits for what comes first."""
    kinds: set[GpuType] = {node.type for node in decider.nodes().values() if node.type is not None}
    for text in WARMING:
        for policy in ("time", "reserve"):
            job = PodJob(
                stated=parse_text(text, "warming"), gpus_per_pod=1, scheduling_policy=policy
            )
            decider.scores(job, kinds)
