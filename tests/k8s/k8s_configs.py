"""Configurations of the extender from plain values, as a file would hold them; jobs by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8s_extender.config import Config
from k8s_extender.errors import ConfigError
from k8s_extender.workload import PodJob, template_job
from predictor.identify.rules import Rules
from predictor.settings import settings_of


def config_of(raw: Any, origin: str = "config") -> Config:
    """The configuration of plain values; raises ConfigError."""
    return settings_of(raw, Config, ConfigError, origin)


def pod_job(pod: Mapping[str, Any], config: Config, rules: Rules | None = None) -> PodJob | None:
    """The job that a pod is part of."""
    return template_job("Pod", pod, config, rules)
