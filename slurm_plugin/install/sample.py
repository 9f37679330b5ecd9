"""A sample request, sent to the daemon as the hook would send it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..daemon import client
from ..errors import InstallError, SlurmError
from ..protocol import Answer, Request

COMMENT = "model=resnet50 precision=amp epochs=1 batch=64"
_REQUEST = Request(
    user="root", name="precision-time-check", comment=COMMENT, tres_per_node="gres:gpu:1"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the daemon answered and how long the exchange took."""

    answer: Answer
    elapsed_s: float


def ask(path: Path) -> Reply:
    """One exchange with the daemon; raises InstallError."""
    started = time.perf_counter()
    try:
        answer = client.ask(path, _REQUEST)
    except SlurmError as error:
        raise InstallError(f"the daemon does not answer: {error}") from None
    return Reply(answer, time.perf_counter() - started)


def answers(path: Path) -> bool:
    """True where a daemon answers on this socket."""
    try:
        ask(path)
    except InstallError:
        return False
    return True


def wait_for_answer(path: Path, timeout_s: float) -> None:
    """Return once the daemon answers; raises InstallError with the last reason it did not."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            ask(path)
            return
        except InstallError as error:
            if time.monotonic() > until:
                raise InstallError(f"{error} (waited {timeout_s:g} s)") from None
        time.sleep(0.2)
