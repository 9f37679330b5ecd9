"""The process that reads Slurm for the daemon: ``python -m ...snapshot_child json|text``.

Its stdin brings the ``slurm`` part of the policy as one line of JSON, and ends with the daemon;
its stdout takes the pieces of one view after the other, its stderr the log.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import IO

from predictor.service.logs import logging_to

from ..config import Slurm
from ..errors import SourceError
from ..sources.base import SlurmSource
from . import PACKAGES, frames


def main() -> None:
    """Send views until the daemon is gone."""
    with logging_to("text" if sys.argv[1:] == ["text"] else "json", *PACKAGES):
        _follow(Slurm.model_validate_json(sys.stdin.buffer.readline()))


def _follow(policy: Slurm) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pieces, source = sys.stdout.buffer, None
    while True:
        started_s = time.monotonic()
        source = _send(pieces, policy, source)
        time.sleep(max(0.1, policy.refresh_s - (time.monotonic() - started_s)))


def _send(pieces: IO[bytes], policy: Slurm, source: SlurmSource | None) -> SlurmSource | None:
    """One view, or why there is none; the source to read the next one from."""
    from ..sources.choose import open_source
    from ..sources.snapshot import take

    try:
        source = open_source(policy) if source is None else source
        for frame in frames.frames(take(source)):
            frames.write(pieces, frame)
    except SourceError as error:
        frames.write(pieces, frames.NoView(str(error)))
        return None
    return source


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
