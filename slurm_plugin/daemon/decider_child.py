"""A process that decides jobs for the daemon.

    python -c "from ... import main; main()" json|text CONFIG CHANNEL VIEWS

CONFIG is ``-`` for the default one, CHANNEL and VIEWS are connections to the daemon. Two such
processes run: ``now`` answers slurmctld and never predicts anything new, ``aside`` does what takes
time. Policy, rules and memory are read once: a reload is another process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

from predictor.errors import PrecisionTimeError
from predictor.service.logs import logging_to
from predictor.service.process import one_thread_for_algebra, settle_memory

from ..config import SlurmPolicy
from ..errors import ProtocolError
from ..estimate import Made, MadeBefore, Remembering
from ..protocol import HookAnswer, parse_request
from . import PACKAGES
from .loading import LoadedPolicy, PolicyLoader
from .views import NewestView


class Ending(StrEnum):
    """How a request was answered."""

    DECIDED = "decided"
    LATE = "late"  # the deadline passed: the job goes on unchanged
    FINISHED_LATE = "finished_late"  # the decision behind a late answer, kept for the next request
    BUSY = "busy"  # too many decisions wait
    MALFORMED = "malformed"
    FAILED = "failed"  # an error of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An answer with the line that carries it, and whose job it is.

    ``id`` is in the answer's ``log``, so that a line of slurmctld.log leads to ours. ``words`` are
    those of ``log``: model, gpu, tier, limit, reason.
    """

    id: str
    ending: Ending
    answer: HookAnswer
    line: bytes
    kind: str = ""
    user: str = ""
    job_name: str = ""
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One request that was answered; ``duration_s`` from its last byte to its answer."""

    decided: Decided
    ending: Ending
    duration_s: float


def words(log: str) -> dict[str, str]:
    """The ``key=value`` words of an answer's log."""
    pairs = (word.partition("=") for word in log.split(" "))
    return {key: value for key, equals, value in pairs if equals and key}


ASIDE_NICE = 10  # whoever answers slurmctld goes first
_log = logging.getLogger(__name__)
Loader = Callable[[NewestView], Callable[[bool], LoadedPolicy]]


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a child: which of the two it is."""

    aside: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """It can decide."""

    policy: SlurmPolicy
    version: str


@dataclass(frozen=True, slots=True)
class Unable:
    """Why it cannot: a file is wrong."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One request line, and predictions that were made aside meanwhile."""

    line: bytes
    name: str
    made: tuple[Made, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAnswer:
    """What was decided. ``open`` where a prediction is still to be made aside."""

    ending: Ending
    answer: HookAnswer
    kind: str = ""
    user: str = ""
    job_name: str = ""
    open: bool = False
    made: tuple[Made, ...] = ()


def serve(channel: Connection, views: Connection, loader: Loader) -> None:
    """Decide what is asked until the daemon is gone."""
    view = NewestView()
    threading.Thread(target=view.follow, args=(views,), daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        start: Start = channel.recv()
        try:
            if start.aside:
                os.nice(ASIDE_NICE)
            loaded = loader(view)(start.aside)
        except PrecisionTimeError as error:
            channel.send(Unable(str(error)))
            return
        settle_memory()
        channel.send(Ready(loaded.policy, loaded.version))
        while True:
            asked: Asked = channel.recv()
            predictor = getattr(loaded.decider, "predictor", None)
            if isinstance(predictor, MadeBefore):
                predictor.take(asked.made)
            answered = _decide(loaded, asked)
            if isinstance(predictor, Remembering):
                answered = replace(answered, made=predictor.made())
            channel.send(answered)


def _decide(loaded: LoadedPolicy, asked: Asked) -> ChildAnswer:
    """One decision; whatever goes wrong in it, the job goes on unchanged."""
    decider = loaded.decider
    try:
        request = parse_request(asked.line)
    except ProtocolError as error:
        _log.warning("malformed request %s: %s", asked.name, error)
        answer = HookAnswer(log=f"outcome={Ending.MALFORMED}", ttl_s=0)
        return ChildAnswer(ending=Ending.MALFORMED, answer=answer)
    try:
        answer, ending = _possible(decider.decide(request)), Ending.DECIDED
    except Exception:
        _log.exception("decision %s failed: job %r of %s", asked.name, request.name, request.user)
        answer, ending = HookAnswer(log="outcome=failed", ttl_s=0), Ending.FAILED
    return ChildAnswer(
        ending=ending,
        answer=answer,
        kind=request.kind,
        user=request.user,
        job_name=request.name or "",
        open=getattr(decider, "is_open", False),
    )


def _possible(answer: HookAnswer) -> HookAnswer:
    """The same answer; raises ValueError for a limit that would end a job at once."""
    for limit in (answer.time_limit, answer.time_min):
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of {limit} min was decided: {answer}")
    return answer


def run(arguments: list[str], log_format: str, loader: Loader) -> None:
    """Serve on the connections that the arguments name."""
    channel, views = (Connection(int(number)) for number in arguments[-2:])
    with logging_to("text" if log_format == "text" else "json", *PACKAGES):
        serve(channel, views, loader)


def main() -> None:
    """The process of ``precision-time slurm daemon``; see the head of this file."""
    one_thread_for_algebra()
    path = None if sys.argv[2] == "-" else Path(sys.argv[2])
    run(sys.argv, sys.argv[1], lambda view: PolicyLoader(path, view))
