"""Who a pod is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .plain import mapping, text

# The API server takes no longer names.
MAX_LENGTH = 253


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod's uid, namespace and name; empty where it has none that the API server would take.

    Events may be about other kinds: what makes pods has a name before they do.
    """

    uid: str
    namespace: str
    name: str
    kind: str = "Pod"
    api_version: str = "v1"


def pod_name(pod: Mapping[str, Any]) -> PodName:
    """Who a pod is; what is of a wrong type, or too long, counts as absent."""
    metadata = mapping(pod, "metadata")
    name = _short(metadata, "name") or _short(metadata, "generateName")
    return PodName(_short(metadata, "uid"), _short(metadata, "namespace"), name)


def _short(metadata: Mapping[str, Any], key: str) -> str:
    found = text(metadata, key)
    return found if len(found) <= MAX_LENGTH else ""
