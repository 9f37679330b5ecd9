"""What a change would have saved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .period import Range


class OpportunityKind(StrEnum):
    """What would be done differently."""

    MIXED_PRECISION = "mixed-precision"
    OTHER_GPU = "other-gpu"
    FEWER_GPUS = "fewer-gpus"

    @property
    def words(self) -> str:
        """The same for people."""
        return self.value.replace("-", " ").replace("gpu", "GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """Like jobs that one change would have served better.

    ``saved_gpu_hours`` counts hours of the GPUs they ran on. Cost in the currency of the price
    file, energy in kWh.
    ``evidence`` says what the prediction rests on, ``command`` how the next job would be sent.
    """

    kind: OpportunityKind
    what: str
    users: tuple[str, ...]
    jobs: int
    gpu_hours: float
    saved_gpu_hours: Range
    saved_cost: Range | None
    saved_kwh: Range | None
    saved_co2e_kg: Range | None
    evidence: str
    command: str
