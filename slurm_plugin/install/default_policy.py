"""The policy file a new installation gets: every field, with its default and what it does."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ..config import Daemon

FILE_NAME = "slurm.yaml"


def text(prefix: Path | None = None) -> str:
    """The file; with a prefix, the daemon's socket lies below it."""
    shipped = (resources.files("slurm_plugin") / "install" / FILE_NAME).read_text(encoding="utf-8")
    if prefix is None:
        return shipped
    socket = Daemon().socket
    return shipped.replace(f"socket: {socket}", f"socket: {prefix / socket.relative_to('/')}")


def values(prefix: Path | None = None) -> Any:
    """The file, read."""
    return yaml.safe_load(text(prefix))
