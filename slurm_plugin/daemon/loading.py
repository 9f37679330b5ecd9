"""What the daemon decides by: policy, rules and predictor, read together and tried out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from predictor.site.calibration.site_state import SiteState, read_state

from ..config import DEFAULT_PATH, SlurmPolicy, read_policy
from ..estimate import MadeBefore, Remembering
from ..protocol import HookAnswer, HookRequest
from .views import NewestView

if TYPE_CHECKING:
    from predictor.identify.rules import Rules

# Jobs decided before the first request, so that imports and first calls are behind us.
WARM_UP = (("resnet50", "amp", "a100"), ("bert-base", "bf16", "v100"), ("gpt2", "fp32", "h100"))
AUTO, MINUTE_S = "auto", 60.0
_log = logging.getLogger(__name__)


class JobDecider(Protocol):
    """What a daemon needs of slurm_plugin.decide.SlurmDecider."""

    def decide(self, request: HookRequest) -> HookAnswer:
        """The answer to one request."""


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """All that decisions rest on but the view of Slurm; ``version`` is the predictor's."""

    policy: SlurmPolicy
    decider: JobDecider
    version: str


def policy_at(path: Path | None) -> SlurmPolicy:
    """The policy of a file, or of the default one; all defaults where that one is missing.

    What it leaves to the runs of the site is filled in. Raises PolicyError and ArtifactError.
    """
    if path is None and not DEFAULT_PATH.exists():
        return SlurmPolicy()
    policy = read_policy(DEFAULT_PATH if path is None else path)
    limits = policy.limits
    if AUTO not in (limits.startup_min, limits.checkpoint_share):
        return policy
    return settled(policy, read_state())


def settled(policy: SlurmPolicy, state: SiteState) -> SlurmPolicy:
    """The policy with what runs of its cluster reported for ``auto``: high quantiles, if known."""
    known, limits = state.cluster(policy.site), policy.limits
    if known is None:
        return policy
    found: dict[str, Any] = {}
    if limits.startup_min == AUTO and known.startup_s is not None:
        found["startup_min"] = known.startup_s.high / MINUTE_S
    if limits.checkpoint_share == AUTO and known.pause_share is not None:
        found["checkpoint_share"] = known.pause_share.high
    return policy.model_copy(update={"limits": limits.model_copy(update=found)})


def rules_of(policy: SlurmPolicy) -> Rules | None:
    """The site rules a policy names, None where it names none; raises PrecisionTimeError."""
    if policy.rules is None:
        return None
    from predictor.identify.rules import read_rules

    return read_rules(policy.rules)


class PolicyLoader:
    """Reads everything from its files, for the process that decides now or the one aside."""

    def __init__(self, config: Path | None, view: NewestView) -> None:
        self._config = config
        self._view = view

    def __call__(self, aside: bool) -> LoadedPolicy:
        """Read it all; raises PrecisionTimeError naming the file that is wrong."""
        from predictor.service.loading import PredictorLoader

        from ..decide import SlurmDecider

        policy = policy_at(self._config)
        loaded = PredictorLoader().load(policy.daemon.predictor_version)
        rules, memory = rules_of(policy), read_state().memory
        predictor = Remembering(loaded.predictor) if aside else MadeBefore()
        view = self._view
        decider = SlurmDecider(
            predictor,
            policy,
            lambda: view.latest,
            rules,
            loaded.version,
            memory,
            lambda: view.ahead,
        )
        for model, precision, gpu in WARM_UP:
            _try_out(decider, model, precision, gpu)
        return LoadedPolicy(policy, decider, loaded.version)


def _try_out(decider: JobDecider, model: str, precision: str, gpu: str) -> None:
    try:
        decider.decide(
            HookRequest(
                user="root",
                comment=f"model={model} precision={precision} steps=1000 batch=8",
                tres_per_node=f"gres/gpu:{gpu}:1",
                script="#!/bin/sh\nexec torchrun train.py --batch-size 8\n",
            )
        )
    except Exception:
        _log.exception("a decision on %s was tried out and failed", model)
