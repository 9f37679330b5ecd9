"""The configuration file, usually a ConfigMap: validated, every field with its default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from predictor.identify.rules import Rules, read_rules
from predictor.settings import Evidence, FabricName, GpuName, PrecisionName, Section, read_settings
from predictor.site.history.settings import HistorySettings

from .errors import ConfigError

PREFIX = "precision-time.io/"

Price = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class Filter(Section):
    """What an annotated pod may be refused for: stated precision or memory, a hard deadline."""

    precision: bool = True
    memory: bool = True
    deadline: bool = True
    deadline_quantile: float = Field(default=0.5, gt=0.0, lt=1.0)


class Prioritize(Section):
    """How nodes are ranked; scores are whole numbers from 0 to ``max_score``.

    ``time`` and ``cost`` and ``energy`` rank by the predicted run, ``balanced`` by the geometric
    mean of time and cost (energy where there are no prices), ``reserve`` keeps fast nodes for the
    jobs that gain most from them.
    """

    policy: Literal["time", "cost", "energy", "balanced", "reserve"] = "time"
    max_score: int = Field(default=10, ge=1, le=100)


class PlacementSettings(Section):
    """Preferred node affinity that the webhook writes on GPU pods, by the policy of `prioritize`.

    ``single_term`` names only the best types, for Karpenter, which buys what is preferred.
    ``balance`` keeps jobs off the types that others wait for which have fewer to choose from; the
    extender heeds it, too.
    """

    enabled: bool = True
    single_term: bool = False
    balance: bool = False


class Deadline(Section):
    """Deadlines we fill. ``annotated`` fills where a namespace label or an annotation asks.

    ``follow`` brings those of Jobs, bare pods and ``follow_kinds`` to the GPUs that they got.
    """

    mode: Literal["off", "annotated", "always"] = "annotated"
    quantile: float = Field(default=0.95, gt=0.0, lt=1.0)
    startup_s: float = Field(default=600.0, ge=0.0)
    checkpoint_share: float = Field(default=0.02, ge=0.0)
    rounding_s: int = Field(default=60, ge=1)
    floor_s: int = Field(default=600, ge=1)
    cap_s: int | None = Field(default=None, ge=1)
    kueue: bool = True
    slinky: bool = True
    follow: bool = True
    follow_kinds: tuple[Literal["PyTorchJob", "RayJob"], ...] = ()


class Hardware(Section):
    """What labels mean: GPU products, and node labels where GPU feature discovery does not run.

    ``claims`` reads ResourceSlices and DeviceClasses: of nodes without labels, and for claims.
    """

    products: dict[str, GpuName] = Field(default={})
    node_label: str | None = None
    node_label_gpus: dict[str, GpuName] = Field(default={})
    resources: tuple[str, ...] = ("nvidia.com/gpu",)
    fabric: FabricName | None = None
    prices_per_gpu_hour: dict[GpuName, Price] = Field(default={})
    claims: bool = False


class Annotate(Section):
    """What is written back on pods, off the scheduling path."""

    pods: bool = True
    events: bool = True


class NodeSettings(Section):
    """The node watch: after ``stale_s`` without a word the table still serves, and says so."""

    stale_s: float = Field(default=120.0, gt=0.0)
    resync_s: float = Field(default=1800.0, gt=0.0)


class Server(Section):
    """The HTTP server; the scheduler keeps idle connections for 90 s."""

    host: str = "0.0.0.0"
    port: int = Field(default=8443, ge=0, le=65535)
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    metrics_port: int | None = Field(default=9844, ge=0, le=65535)
    keep_alive_s: float = Field(default=120.0, gt=90.0)
    max_body_bytes: int = Field(default=16 * 2**20, ge=2**20)
    drain_s: float = Field(default=20.0, ge=0.0)
    log_format: Literal["json", "text"] = "json"


class Config(Section):
    """The whole file. ``site`` names this cluster and its own measured runs; ``rules`` is a path.

    ``mode: observe`` tells in events and metrics what would be done, and does none of it.
    ``history`` is what ``history ingest kubernetes`` fills.
    """

    mode: Literal["observe", "place"] = "place"

    site: str = ""
    assumed_precision: PrecisionName | None = None
    filter: Filter = Filter()
    prioritize: Prioritize = Prioritize()
    placement: PlacementSettings = PlacementSettings()
    evidence: Evidence = Evidence()
    deadline: Deadline = Deadline()
    hardware: Hardware = Hardware()
    annotate: Annotate = Annotate()
    nodes: NodeSettings = NodeSettings()
    rules: Path | None = None
    predictor_version: str | None = None
    server: Server = Server()
    history: HistorySettings = HistorySettings()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.prioritize.policy == "cost" and not self.hardware.prices_per_gpu_hour:
            raise ValueError("prioritize.policy=cost needs hardware.prices_per_gpu_hour")
        if (self.server.certificate is None) != (self.server.key is None):
            raise ValueError("server.certificate and server.key are given together or not at all")
        return self

    @property
    def watches_pods(self) -> bool:
        """Whether anything of it needs to know the pods and Jobs of the cluster."""
        return self.placement.balance or (self.deadline.follow and self.deadline.mode != "off")

    def site_rules(self) -> Rules:
        """The site rules that it names, none without; raises RulesError."""
        return Rules() if self.rules is None else read_rules(self.rules)


def read_config(path: Path | None) -> Config:
    """The configuration of a file, all defaults without one; raises ConfigError naming field."""
    return Config() if path is None else read_settings(path, Config, ConfigError)
