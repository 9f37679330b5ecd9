"""Objects that were created earlier: their times are changed where the API server keeps them.

The API server lets nobody say when an object was created or its deletion began.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from datetime import UTC, datetime
from typing import Any

from .control_plane import ControlPlane, wait_until


def stamp(moment_s: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def date_back(
    cluster: ControlPlane,
    key: str,
    *,
    created_s: float | None = None,
    deleted_s: float | None = None,
) -> None:
    """Change when an object was created, or when its deletion began.

    ``key`` is its place in the store, as ``pods/namespace/name``; times are Unix seconds. Returns
    once the store has it.
    """
    path = f"/registry/{key}"
    asked_s = {"creationTimestamp": created_s, "deletionTimestamp": deleted_s}
    times = {name: stamp(moment_s) for name, moment_s in asked_s.items() if moment_s is not None}

    def changed() -> bool:
        """Done, unless somebody else wrote the object at the same time."""
        found = _ask(cluster, "range", key=_coded(path))["kvs"][0]
        stored = json.loads(base64.b64decode(found["value"]))
        stored["metadata"] |= times
        same = {"key": _coded(path), "target": "MOD", "modRevision": found["mod_revision"]}
        put = {"requestPut": {"key": _coded(path), "value": _coded(json.dumps(stored))}}
        return bool(_ask(cluster, "txn", compare=[same], success=[put]).get("succeeded"))

    wait_until(changed)


def _ask(cluster: ControlPlane, what: str, **asked: Any) -> Any:
    request = urllib.request.Request(f"{cluster.etcd}/v3/kv/{what}", json.dumps(asked).encode())
    with urllib.request.urlopen(request, timeout=30.0) as answer:
        return json.load(answer)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
