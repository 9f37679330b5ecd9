"""What the daemon decides by: policy, rules and predictor, read together and tried out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ..cluster import Cluster
from ..config import DEFAULT_PATH, SlurmPolicy, read_policy
from ..protocol import HookAnswer, HookRequest
from ..site_times import settled, state_for
from .predictions import MadeBefore, Remembering

if TYPE_CHECKING:
    from predictor.identify.rules import Rules

# Jobs decided before the first request, so that imports and first calls are behind us.
WARM_UP = (("resnet50", "amp", "a100"), ("bert-base", "bf16", "v100"), ("gpt2", "fp32", "h100"))
_log = logging.getLogger(__name__)

View = Callable[[], Cluster | None]


class JobDecider(Protocol):
    """What a daemon needs of slurm_plugin.decide.SlurmDecider."""

    follow_ups: SimpleQueue[Any]

    def decide(self, request: HookRequest) -> HookAnswer:
        """The answer to one request."""


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """All that decisions rest on but the view of Slurm; ``version`` is the predictor's.

    ``by_names`` where site rules or similar runs look at a job's name and directory.
    """

    policy: SlurmPolicy
    decider: JobDecider
    version: str
    by_names: bool = True


def policy_at(path: Path | None) -> SlurmPolicy:
    """The policy of a file, or of the default one; all defaults where that one is missing.

    What it leaves to the runs of the site is filled in. Raises PolicyError and ArtifactError.
    """
    if path is None and not DEFAULT_PATH.exists():
        return SlurmPolicy()
    policy = read_policy(DEFAULT_PATH if path is None else path)
    return settled(policy, state_for(policy))


def rules_of(policy: SlurmPolicy) -> Rules | None:
    """The site rules a policy names, None where it names none; raises PrecisionTimeError."""
    if policy.rules is None:
        return None
    from predictor.identify.rules import read_rules

    return read_rules(policy.rules)


class PolicyLoader:
    """Reads everything from its files, for the process that decides now or the one aside."""

    def __init__(self, config: Path | None, view: View) -> None:
        self._config = config
        self._view = view

    def __call__(self, aside: bool) -> LoadedPolicy:
        """Read it all; raises PrecisionTimeError naming the file that is wrong."""
        from predictor.service.loading import PredictorLoader
        from predictor.site.calibration.site_state import read_state

        from ..decide import SlurmDecider

        policy = policy_at(self._config)
        loaded = PredictorLoader().load(policy.daemon.predictor_version)
        rules, memory = rules_of(policy), read_state().memory
        predictor = Remembering(loaded.predictor) if aside else MadeBefore()
        decider = SlurmDecider(predictor, policy, self._view, rules, loaded.version, memory)
        for model, precision, gpu in WARM_UP:
            _try_out(decider, model, precision, gpu)
        return LoadedPolicy(
            policy, decider, loaded.version, by_names=rules is not None or bool(memory.seen())
        )


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
