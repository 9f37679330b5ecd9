"""What daemons show of drift: a small JSON file that ``precision-time drift --snapshot`` writes.

``<home>/drift.json``. Daemons read it at each scrape, so that no scrape waits for a database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ... import trusted_files as files
from ...errors import ArtifactError

FILE_NAME = "drift.json"
FORMAT = 1
MAX_STREAMS = 200  # so that labels stay few


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """One stream; ``model`` empty for all models, ``alarm`` 1 for slower, -1 for faster, else 0.

    ``bias`` and ``shift`` are shares of the predicted and of the earlier time.
    """

    cluster: str
    framework: str
    gpu: str
    model: str
    runs: int
    bias: float | None
    coverage: float | None
    alarm: int
    shift: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The streams at ``written_s`` (Unix seconds)."""

    written_s: float
    streams: tuple[StreamState, ...]


def write_snapshot(streams: Iterable[StreamState], written_s: float) -> Path:
    """Put the file in place of the one before, alarms and large streams first; ArtifactError."""
    root = files.home()
    kept = sorted(streams, key=lambda s: (s.alarm == 0, s.model != "", -s.runs))[:MAX_STREAMS]
    raw = {"format": FORMAT, "written_s": written_s, "streams": [asdict(s) for s in kept]}
    with files.exclusive(root):
        files.replace_text(root / FILE_NAME, json.dumps(raw, allow_nan=False))
    return root / FILE_NAME


def read_snapshot() -> Snapshot | None:
    """None where there is none; raises ArtifactError for a file not to be trusted."""
    path = files.home() / FILE_NAME
    try:
        raw = json.loads(files.trusted(path).read_bytes())
        if raw["format"] != FORMAT:
            raise ValueError(f"format {raw['format']}, not {FORMAT}")
        streams = tuple(StreamState(**s) for s in raw["streams"][:MAX_STREAMS])
        return Snapshot(float(raw["written_s"]), streams)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path} is not what `precision-time drift --snapshot` writes ({error}): run it again"
        ) from None
