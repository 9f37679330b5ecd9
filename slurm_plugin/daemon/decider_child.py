"""A process that decides jobs for the daemon.

    python -c "from ... import main; main()" json|text CONFIG now|aside CHANNEL

CONFIG is ``-`` for the default one, CHANNEL a connection to the daemon. Two such processes run:
``now`` answers slurmctld and never predicts anything new, ``aside`` does what takes time. Policy,
rules and memory are read once: a reload is another process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from predictor.errors import PrecisionTimeError
from predictor.service.logs import logging_to
from predictor.service.process import one_thread_for_algebra, settle_memory
from predictor.site.calibration.site_state import read_state

from ..ahead import QueueAhead
from ..cluster import Cluster
from ..config import SlurmPolicy, policy_at, rules_of
from ..errors import ProtocolError
from ..estimate import Made, MadeBefore, Remembering
from ..mark import MARK_HEAD
from ..protocol import HookAnswer, HookRequest, parse_request
from . import PACKAGES

if TYPE_CHECKING:
    from ..decide import SlurmDecider

ASIDE, ASIDE_NICE = "aside", 10  # whoever answers slurmctld goes first
# Jobs decided before the first request, so that imports and first calls are behind us.
WARM_UP = (("resnet50", "amp", "a100"), ("bert-base", "bf16", "v100"), ("gpt2", "fp32", "h100"))
_log = logging.getLogger(__name__)


class Ending(StrEnum):
    """How a request was answered."""

    DECIDED = "decided"
    LATE = "late"  # the deadline passed: the job goes on unchanged
    FINISHED_LATE = "finished_late"  # the decision behind a late answer, kept for the next request
    BUSY = "busy"  # too many decisions wait
    MALFORMED = "malformed"
    FAILED = "failed"  # an error of ours


class Asked(NamedTuple):
    """One request line, and predictions that were made aside meanwhile."""

    line: bytes
    name: str
    made: tuple[Made, ...] = ()


class ChildAnswer(NamedTuple):
    """The line for the hook with its log, and whose job it is.

    ``limited`` where a limit is set, ``open`` where a prediction is still to come.
    """

    ending: Ending
    line: bytes
    log: str
    limited: bool = False
    kind: str = ""
    user: str = ""
    job_name: str = ""
    open: bool = False
    made: tuple[Made, ...] = ()


def unchanged(ending: Ending, name: str, job: str = "", comment: str | None = None) -> ChildAnswer:
    """The answer for a job that goes on as it is, but for a mark where there is a comment."""
    answer = HookAnswer(log=f"outcome={ending} id={name}", admin_comment=comment, ttl_s=0)
    return ChildAnswer(ending, answer.encode(), answer.log, job_name=job)


@dataclass(frozen=True, slots=True)
class Ready:
    """The first word of a child that can decide; one that cannot says why in a text."""

    policy: SlurmPolicy
    version: str


@dataclass(slots=True)
class NewestView:
    """The newest view of Slurm, without its jobs, and when new ones would start."""

    latest: Cluster | None = None
    ahead: QueueAhead | None = None

    def take(self, packed: bytes) -> None:
        """Take in what ``views`` packed."""
        self.latest, self.ahead = pickle.loads(packed)


def load_policy(config: Path | None, view: NewestView, aside: bool) -> SlurmDecider:
    """Read it all; raises PrecisionTimeError naming the file that is wrong."""
    from predictor.service.loading import PredictorLoader

    from ..decide import SlurmDecider

    policy = policy_at(config)
    loaded = PredictorLoader().load(policy.daemon.predictor_version)
    decider = SlurmDecider(
        Remembering(loaded.predictor) if aside else MadeBefore(),
        policy,
        lambda: view.latest,
        rules_of(policy),
        loaded.version,
        read_state().memory,
        lambda: view.ahead,
    )
    bound_s, decider.read_cpu_s = decider.read_cpu_s, 60.0  # first reads are slow
    for model, precision, gpu in WARM_UP:
        request = HookRequest(
            user="root",
            comment=f"model={model} precision={precision} steps=1000 batch=8",
            tres_per_node=f"gres/gpu:{gpu}:1",
            script=f"#!/bin/sh\nexec torchrun main.py --model {model} --batch-size 8\n",
        )
        try:
            decider.decide(request)
        except Exception:
            _log.exception("a decision on %s was tried out and failed", model)
    decider.read_cpu_s = bound_s
    return decider


def run(
    arguments: list[str], log_format: str, loader: Callable[[NewestView, bool], SlurmDecider]
) -> None:
    """Decide what is asked on the channel that the arguments name, until the daemon is gone."""
    aside, channel = arguments[-2] == ASIDE, Connection(int(arguments[-1]))
    view = NewestView()
    form: Literal["json", "text"] = "text" if log_format == "text" else "json"
    with logging_to(form, *PACKAGES), contextlib.suppress(EOFError, ConnectionError):
        if aside:
            os.nice(ASIDE_NICE)
        try:
            decider = loader(view, aside)
        except PrecisionTimeError as error:
            channel.send(str(error))
            return
        settle_memory()
        channel.send(Ready(decider.policy, decider.version))
        predictor = decider.predictor
        while True:
            asked: Asked | bytes = channel.recv()
            if isinstance(asked, bytes):
                view.take(asked)
                decider.look()
                continue
            if isinstance(predictor, MadeBefore):
                predictor.take(asked.made)
            answered = _decide(decider, asked)
            if isinstance(predictor, Remembering):
                answered = answered._replace(made=predictor.made())
            channel.send_bytes(pickle.dumps(answered))


def _decide(decider: SlurmDecider, asked: Asked) -> ChildAnswer:
    """One decision; whatever goes wrong in it, the job goes on unchanged."""
    try:
        request = parse_request(asked.line)
    except ProtocolError as error:
        _log.warning("malformed request %s: %s", asked.name, error)
        return unchanged(Ending.MALFORMED, asked.name)
    try:
        answer, ending = decider.decide(request), Ending.DECIDED
        if any(limit is not None and limit < 1 for limit in (answer.time_limit, answer.time_min)):
            raise ValueError(f"a limit that would end a job at once was decided: {answer}")
    except Exception:
        _log.exception("decision %s failed: job %r of %s", asked.name, request.name, request.user)
        answer, ending = HookAnswer(log="outcome=failed", ttl_s=0), Ending.FAILED
    answer = replace(answer, log=f"{answer.log} id={asked.name}")
    if decider.is_open:  # not repeated, and found by its mark
        comment = (answer.admin_comment or "").replace(
            MARK_HEAD, f"{MARK_HEAD} later={asked.name}", 1
        )
        answer = replace(answer, admin_comment=comment or None, ttl_s=0)
    return ChildAnswer(
        ending,
        answer.encode(),
        answer.log,
        limited=answer.time_limit is not None,
        kind=request.kind,
        user=request.user,
        job_name=request.name or "",
        open=decider.is_open,
    )


def main() -> None:
    """The process of ``precision-time slurm daemon``; see the head of this file."""
    one_thread_for_algebra()
    path = None if sys.argv[2] == "-" else Path(sys.argv[2])
    run(sys.argv, sys.argv[1], partial(load_policy, path))
