"""The exceptions of the Kubernetes side.

PrecisionTimeError
└── KubernetesError     something of the cluster or of our configuration stands in the way
    ├── ConfigError         the configuration is wrong: field, value, what is expected
    ├── WireError           a request body is not what the scheduler or API server sends
    └── ClusterError        the API server cannot be reached or refuses
"""

from __future__ import annotations

from predictor.errors import PrecisionTimeError


class KubernetesError(PrecisionTimeError):
    """Something of the cluster or of the configuration stands in the way."""


class ConfigError(KubernetesError):
    """The configuration is wrong; the message names field, value and what is expected."""


class WireError(KubernetesError):
    """A request body is malformed; the message names the key."""


class ClusterError(KubernetesError):
    """The API server cannot be reached or refuses; the message names the call."""
