"""What decisions rest on at this moment; each part is replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from predictor.identify.grammar import parse_text
from predictor.service.loading import LoadedPredictor, PredictorLoader
from predictor.site.calibration.site_state import read_state

from ..claims import Devices, with_devices
from ..config import Config
from ..decide import Decider
from ..estimate import SiteEstimates, TypeEstimate
from ..nodes import NodeWatch
from ..records import GpuNode, PodJob
from ..type_index import NodeTable

# Jobs of a convolutional network and a transformer: they touch every part of a prediction.
WARMING = (
    "model=resnet50 precision=amp batch=128 epochs=1",
    "model=bert-large precision=fp32 batch=8 steps=100",
)


class ServerState:
    """The configuration, the nodes and the decider in use, which is None until one is loaded."""

    def __init__(self, config: Config, nodes: NodeWatch, devices: Devices | None = None) -> None:
        self.config = config
        self.nodes = nodes
        self.devices = devices
        self._merged: tuple[object, object, NodeTable] = (None, None, {})
        self.decider: Decider | None = None
        self.draining = False
        self.loading_failed = ""

    @property
    def observes(self) -> bool:
        """True where nothing is to be changed."""
        return self.config.mode == "observe"

    def table(self) -> Mapping[str, GpuNode]:
        """The newest table of nodes, with the GPUs that their slices tell."""
        if self.devices is None:
            return self.nodes.table
        nodes, types = self.nodes.table, self.devices.types
        if self._merged[0] is not nodes or self._merged[1] is not types:
            self._merged = (nodes, types, with_devices(nodes, types))
        return self._merged[2]

    def why_not_ready(self) -> tuple[str, ...]:
        """What stands in the way of answering well; empty where nothing does."""
        reasons = []
        if self.draining:
            reasons.append("shutting down")
        if self.decider is None:
            reasons.append(self.loading_failed or "the predictor is not loaded yet")
        if not self.nodes.synced.is_set():
            error = f": {self.nodes.error}" if self.nodes.error else ""
            reasons.append(f"the nodes are not listed yet{error}")
        return tuple(reasons)

    def warnings(self) -> tuple[str, ...]:
        """What is wrong while answers still go out."""
        if self.nodes.synced.is_set() and self.nodes.stale:
            return (f"nodes were last heard of {self.nodes.age_s:.0f} s ago",)
        return ()


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
        rules = config.site_rules()
        loaded = self._predictors.load(config.predictor_version)
        decider = Decider(
            loaded.predictor,
            config,
            self._nodes,
            rules=rules,
            version=loaded.version,
            predicted=self._predicted,
            site=SiteEstimates(read_state().memory, loaded.predictor, config.site),
        )
        if loaded is not self._warm:
            warm(decider)
            self._warm = loaded
        return decider


def warm(decider: Decider) -> None:
    """Predict once on every GPU type of the table, so that no pod waits for what comes first."""
    kinds = {node.type for node in decider.nodes().values() if node.type is not None}
    for text in WARMING:
        for policy in ("time", "reserve"):
            stated = parse_text(text, "warming")
            decider.scores(PodJob(stated=stated, gpus_per_pod=1, scheduling_policy=policy), kinds)
