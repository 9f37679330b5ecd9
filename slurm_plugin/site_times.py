"""Start-up and pauses that a policy leaves to what runs of the site reported (``auto``)."""

from __future__ import annotations

from typing import Any

from predictor.site.calibration.site_state import SiteState, read_state

from .config import SlurmPolicy

AUTO = "auto"
MINUTE_S = 60.0


def state_for(policy: SlurmPolicy) -> SiteState:
    """The state of the site, empty where the policy makes no use of it; raises ArtifactError."""
    limits = policy.limits
    auto = AUTO in (limits.startup_min, limits.checkpoint_share)
    return read_state() if auto or limits.history_mode != "off" else SiteState()


def settled(policy: SlurmPolicy, state: SiteState) -> SlurmPolicy:
    """The policy with the high quantiles of its cluster for ``auto``, where they are known."""
    known, limits = state.cluster(policy.site), policy.limits
    if known is None:
        return policy
    found: dict[str, Any] = {}
    if limits.startup_min == AUTO and known.startup_s is not None:
        found["startup_min"] = known.startup_s.high / MINUTE_S
    if limits.checkpoint_share == AUTO and known.pause_share is not None:
        found["checkpoint_share"] = known.pause_share.high
    return policy.model_copy(update={"limits": limits.model_copy(update=found)})
