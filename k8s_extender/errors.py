"""The exceptions of the Kubernetes side, all of them a PrecisionTimeError."""

from __future__ import annotations

from predictor.errors import PrecisionTimeError


class ConfigError(PrecisionTimeError):
    """The configuration is wrong; the message names field, value and what is expected."""


class WireError(PrecisionTimeError):
    """A request body is malformed; the message names the key."""


class ClusterError(PrecisionTimeError):
    """The API server cannot be reached or refuses; the message names the call."""
