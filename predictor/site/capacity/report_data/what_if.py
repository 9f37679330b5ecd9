"""The period under a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One replay of the period."""

    name: str
    gpus: Mapping[str, int]
    jobs: int
    never_started: int
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    utilisation: float
    gpu_hours: float
    kwh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The period as it would have been; ``baseline`` is a replay too, so that both are alike.

    ``history_mean_wait_s`` is what was really waited: how far the replay is from it tells how far
    to trust it. ``unmoved_jobs`` could not be predicted and kept their time and GPU type.
    """

    change: str
    baseline: Scenario
    changed: Scenario
    history_mean_wait_s: float
    unmoved_jobs: int
