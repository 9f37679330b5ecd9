"""What a real API server held of a small site: payloads/site.json, see the README beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api_server_stand_in import JOBS, NODES, PODS, StandIn

SITE = Path(__file__).parent / "payloads" / "site.json"
_PATHS = {"Node": NODES, "Job": JOBS, "Pod": PODS}


def captured() -> list[dict[str, Any]]:
    """The nodes, Jobs and pods."""
    found: list[dict[str, Any]] = json.loads(SITE.read_text())["items"]
    return found


def serve(stand_in: StandIn, objects: Sequence[dict[str, Any]]) -> None:
    """Let a stand-in hold them; names are those of more than one namespace."""
    for obj in objects:
        metadata = obj["metadata"]
        collection = stand_in.collections[_PATHS[obj["kind"]]]
        collection.objects[f"{metadata.get('namespace', '')}/{metadata['name']}"] = obj


def write(told: dict[str, Any]) -> None:
    """Keep what ``kubectl get nodes,jobs,pods -A -o json`` gave, one object a line."""
    lines = ",\n".join(json.dumps(obj, sort_keys=True) for obj in told["items"])
    SITE.write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [\n{lines}\n]}}\n')
