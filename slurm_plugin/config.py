"""The policy file: ``/etc/precision-time/slurm.yaml``, validated, every field with its default."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from predictor.settings import Evidence, FabricName, GpuName, PrecisionName, Section, read_settings
from predictor.site.history.cells import duration_s
from predictor.site.history.settings import HistorySettings

from .errors import PolicyError

if TYPE_CHECKING:
    from predictor.identify.rules import Rules

DEFAULT_PATH = Path("/etc/precision-time/slurm.yaml")
STARTUP_MIN, CHECKPOINT_SHARE = 10.0, 0.02

NotNegative = Annotated[float, Field(ge=0.0)]


class PartitionLimits(Section):
    """Bounds of one partition on what we set, in minutes; Slurm's MaxTime holds besides."""

    floor_min: int | None = Field(default=None, ge=1)
    cap_min: int | None = Field(default=None, ge=1)


class SlurmLimits(Section):
    """How a time limit follows from a prediction.

    ``auto`` is what runs of the site reported (``precision-time calibrate``). ``history_mode`` is
    what becomes of jobs without a prediction whose user has had similar runs.
    """

    mode: Literal["set", "warn", "off"] = "set"
    quantile: float = Field(default=0.95, gt=0.0, lt=1.0)
    startup_min: NotNegative | Literal["auto"] = STARTUP_MIN
    checkpoint_share: NotNegative | Literal["auto"] = CHECKPOINT_SHARE
    rounding_min: int = Field(default=5, ge=1)
    floor_min: int = Field(default=10, ge=1)
    time_min_quantile: float | None = Field(default=None, gt=0.0, lt=1.0)
    assumed_precision: PrecisionName | None = "fp32"
    warn_explicit: bool = True
    partitions: dict[str, PartitionLimits] = Field(default={})
    evidence: Evidence = Evidence()
    history_mode: Literal["fill", "advise", "off"] = "off"

    @property
    def startup_s(self) -> float:
        """Seconds of start-up; the default where ``auto`` knows of no runs."""
        return 60.0 * (STARTUP_MIN if self.startup_min == "auto" else self.startup_min)

    @property
    def pause_share(self) -> float:
        """Share of the run added for checkpoints; the default where ``auto`` knows of no runs."""
        share = self.checkpoint_share
        return CHECKPOINT_SHARE if share == "auto" else share


class SlurmPlacement(Section):
    """Where jobs go. ``features`` names the node feature that means a precision runs natively."""

    mode: Literal["apply", "advise", "off"] = "apply"
    method: Literal["constraint", "prefer", "gres"] = "constraint"
    fp32: Literal["anywhere", "avoid_tensor_cores"] = "anywhere"
    features: dict[Literal["tensor_core", "tf32", "bf16", "fp8", "fp4"], str] = Field(
        default={
            "tensor_core": "tensorcore",
            "tf32": "tf32",
            "bf16": "bf16",
            "fp8": "fp8",
            "fp4": "fp4",
        }
    )
    partition_mode: Literal["apply", "advise", "off"] = "off"
    partition_choices: tuple[str, ...] = ()


class Order(Section):
    """In which order jobs wait: each stands back by ``weight`` times its estimate.

    No job is overtaken by one that was submitted ``longest_delay`` later.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)  # 7 is told what it lacks
    mode: Literal["apply", "advise", "off"] = "off"
    weight: float = Field(default=5.0, gt=0.0)
    longest_delay: str = Field(default="7d", pattern=r"^\d+(\.\d+)?(s|min|h|d)$")

    @property
    def longest_delay_s(self) -> float:
        """The same in seconds."""
        return duration_s(self.longest_delay, 1.0) or 0.0


class SoftTimePolicy(Section):
    """Whether backfill plans jobs by their estimates, where OverTimeLimit lets that be harmless."""

    mode: Literal["apply", "advise", "off"] = "off"


class Exclude(Section):
    """Jobs we never touch."""

    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()

    def reason(
        self, user: str, account: str | None, qos: str | None, partitions: Collection[str]
    ) -> str | None:
        """What keeps a job out: user, account, qos, or partition where all it asks for are."""
        checks = {
            "user": user in self.users,
            "account": account in self.accounts,
            "qos": qos in self.qos,
            "partition": bool(partitions) and self.partitions.issuperset(partitions),
        }
        return next((name for name, hit in checks.items() if hit), None)


class SlurmHardware(Section):
    """What Slurm's names mean: GRES types and node features to GPUs of ``precision-time gpus``."""

    gpu_types: dict[str, GpuName] = Field(default={})
    node_gpus: dict[str, GpuName] = Field(default={})
    fabric: FabricName | None = None


class Slurm(Section):
    """How Slurm's data are read. ``source`` auto is pyslurm where it works, else the text."""

    source: Literal["auto", "pyslurm", "json", "text"] = "auto"
    bin_dir: Path | None = None
    refresh_s: float = Field(default=15.0, ge=1.0)
    command_timeout_s: float = Field(default=20.0, gt=0.0)


class Daemon(Section):
    """The decision daemon."""

    socket: Path = Path("/run/precision-time/slurm.sock")
    allowed_users: frozenset[str] = frozenset()
    metrics: str | None = "127.0.0.1:9843"
    log_format: Literal["json", "text"] = "json"
    predictor_version: str | None = None
    deadline_ms: float = Field(default=20.0, gt=0.0)
    prediction_ms: float = Field(default=0.0, ge=0.0)


class Watch(Section):
    """Limits of running jobs, re-estimated from their own step rate."""

    mode: Literal["apply", "advise", "off"] = "off"
    interval_s: float = Field(default=60.0, ge=1.0)
    extend: bool = True
    trim: bool = False
    max_extension: float = Field(default=1.5, ge=1.0)
    margin_share: float = Field(default=0.1, ge=0.0)
    min_steps: int = Field(default=20, ge=1)
    rate_file: str = "precision-time-steps.json"


class SlurmPolicy(Section):
    """The whole file. ``site`` names this cluster's own measured runs; ``rules`` is a path.

    With ``history.url``, ``slurm watch`` adds the jobs that ended to that history.
    """

    site: str = ""
    limits: SlurmLimits = SlurmLimits()
    placement: SlurmPlacement = SlurmPlacement()
    order: Order = Order()
    soft_time: SoftTimePolicy = SoftTimePolicy()
    exclude: Exclude = Exclude()
    hardware: SlurmHardware = SlurmHardware()
    rules: Path | None = None
    slurm: Slurm = Slurm()
    daemon: Daemon = Daemon()
    watch: Watch = Watch()
    history: HistorySettings = HistorySettings()

    @model_validator(mode="after")
    def _consistent(self) -> SlurmPolicy:
        for name, part in self.limits.partitions.items():
            if part.floor_min and part.cap_min and part.floor_min > part.cap_min:
                raise ValueError(
                    f"limits.partitions.{name}: floor_min={part.floor_min} is above "
                    f"cap_min={part.cap_min}"
                )
        lower = self.limits.time_min_quantile
        if lower is not None and lower >= self.limits.quantile:
            raise ValueError(
                f"limits.time_min_quantile={lower} must be below limits.quantile="
                f"{self.limits.quantile}"
            )
        return self


def read_policy(path: Path) -> SlurmPolicy:
    """The policy of a file; raises PolicyError naming file, field, value and what is expected."""
    return read_settings(path, SlurmPolicy, PolicyError)


def policy_at(path: Path | None) -> SlurmPolicy:
    """The policy of a file, or of the default one; all defaults where that one is missing.

    What it leaves to the runs of the site is filled in. Raises PolicyError and ArtifactError.
    """
    if path is None and not DEFAULT_PATH.exists():
        return SlurmPolicy()
    policy = read_policy(DEFAULT_PATH if path is None else path)
    limits = policy.limits
    if "auto" not in (limits.startup_min, limits.checkpoint_share):
        return policy
    from predictor.site.calibration.site_state import read_state  # with all that predicts

    known = read_state().cluster(policy.site)  # what its runs reported, high quantiles
    if known is None:
        return policy
    found: dict[str, Any] = {}
    if limits.startup_min == "auto" and known.startup_s is not None:
        found["startup_min"] = known.startup_s.high / 60.0
    if limits.checkpoint_share == "auto" and known.pause_share is not None:
        found["checkpoint_share"] = known.pause_share.high
    return policy.model_copy(update={"limits": limits.model_copy(update=found)})


def rules_of(policy: SlurmPolicy) -> Rules | None:
    """The site rules a policy names, None where it names none; raises PrecisionTimeError."""
    if policy.rules is None:
        return None
    from predictor.identify.rules import read_rules

    return read_rules(policy.rules)
