"""One decision for the daemon, and a process that makes those for which nobody waits.

    python -c "from ... import main; main()" json|text CONFIG CHANNEL

CONFIG is ``-`` for the default one, CHANNEL a connection to the daemon, which itself never predicts
anything new. Policy, rules and memory are read once: a reload is another process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from predictor.errors import PrecisionTimeError
from predictor.service.logs import logging_to
from predictor.service.process import one_thread_for_algebra, settle_memory
from predictor.site.calibration.site_state import read_state

from ..config import policy_at, rules_of
from ..errors import ProtocolError
from ..estimate import MadeBefore, Remembering, Sent
from ..mark import MARK_HEAD
from ..protocol import HookAnswer, HookRequest, parse_request
from . import PACKAGES

if TYPE_CHECKING:
    from ..decide import SlurmDecider

ASIDE_NICE = 5  # whoever answers slurmctld goes first; behind Nice=-5 of the unit like all else
ASIDE_READ_S = 0.05  # of processor time for a script for which nobody waits
# Jobs decided before the first request, so that imports and first calls are behind us.
WARM_UP = (
    ("resnet50", "amp", "a100"),
    ("bert-base", "bf16", "v100"),
    ("gpt2", "fp32", "h100"),
    ("net-of-nobody", "bf16", "a100"),
)
_encoded = lru_cache(1024)(HookAnswer.encode)
_log = logging.getLogger(__name__)


class Ending(StrEnum):
    """How a request was answered."""

    DECIDED = "decided"
    LATE = "late"  # the deadline passed: the job goes on unchanged
    FINISHED_LATE = "finished_late"  # the decision behind a late answer, kept for the next request
    BUSY = "busy"  # too many decisions wait
    MALFORMED = "malformed"
    FAILED = "failed"  # an error of ours


class ChildAnswer(NamedTuple):
    """The line for the hook with its log, and whose job it is.

    ``open`` where a prediction is still to come; ``made`` are those that were made aside for it.
    """

    ending: Ending
    line: bytes
    log: str
    user: str = ""
    job_name: str = ""
    open: bool = False
    made: tuple[Sent, ...] = ()

    @property
    def words(self) -> dict[str, str]:
        """The ``key=value`` words of the log: model, gpu, tier, limit, reason."""
        pairs = (word.partition("=") for word in self.log.split(" "))
        return {key: value for key, equals, value in pairs if equals and key}


def unchanged(ending: Ending, name: str, job: str = "", comment: str | None = None) -> ChildAnswer:
    """The answer for a job that goes on as it is, but for a mark where there is a comment."""
    follows = None if comment is None else "the estimate follows: precision-time slurm eta"
    words = f"reason={ending} id={name}"
    answer = HookAnswer(log=words, message=follows, admin_comment=comment, ttl_s=0)
    return ChildAnswer(ending, answer.encode(), answer.log, job_name=job)


def load_policy(config: Path | None, aside: bool) -> SlurmDecider:
    """Read it all; raises PrecisionTimeError naming the file that is wrong."""
    from predictor.graphs.catalog import import_builders
    from predictor.service.loading import PredictorLoader

    from ..decide import SlurmDecider

    policy = policy_at(config)
    predictor: MadeBefore | Remembering = MadeBefore()
    version = ""
    if aside:
        loaded = PredictorLoader().load(policy.daemon.predictor_version)
        predictor, version = Remembering(loaded.predictor), loaded.version
    decider = SlurmDecider(
        predictor, policy, rules=rules_of(policy), version=version, memory=read_state().memory
    )
    import_builders()
    bound_s = ASIDE_READ_S if aside else decider.read_cpu_s
    decider.read_cpu_s = 60.0  # first reads are slow
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


def run(arguments: list[str], log_format: str, loader: Callable[[bool], SlurmDecider]) -> None:
    """Decide what is asked on the channel that the arguments name, until the daemon is gone.

    The first word is the version of the predictor, or empty, and why nothing can be decided.
    """
    channel = Connection(int(arguments[-1]))
    logs = logging_to("text" if log_format == "text" else "json", *PACKAGES)
    with logs, contextlib.suppress(EOFError, ConnectionError):
        os.nice(ASIDE_NICE)
        try:
            decider = loader(True)
        except PrecisionTimeError as error:
            channel.send(("", str(error)))
            return
        settle_memory()
        channel.send((decider.version, ""))
        predictor = decider.predictor
        while True:
            asked: tuple[bytes, str] | bytes = channel.recv()
            if isinstance(asked, bytes):
                decider.look(*pickle.loads(asked))
                continue
            answered = decided(decider, *asked)
            if isinstance(predictor, Remembering):
                answered = answered._replace(made=predictor.made())
            channel.send_bytes(pickle.dumps(answered))


def decided(decider: SlurmDecider, line: bytes, name: str) -> ChildAnswer:
    """One decision by its id; whatever goes wrong in it, the job goes on unchanged."""
    try:
        request = parse_request(line)
    except ProtocolError as error:
        _log.warning("malformed request %s: %s", name, error)
        return unchanged(Ending.MALFORMED, name)
    try:
        answer, ending = decider.decide(request), Ending.DECIDED
        if any(limit is not None and limit < 1 for limit in (answer.time_limit, answer.time_min)):
            raise ValueError(f"a limit that would end a job at once was decided: {answer}")
    except Exception:
        _log.exception("decision %s failed: job %r of %s", name, request.name, request.user)
        answer, ending = HookAnswer(log="reason=failed", ttl_s=0), Ending.FAILED
    if decider.is_open:  # not repeated, and found by its mark
        mark = (answer.admin_comment or "").replace(MARK_HEAD, f"{MARK_HEAD} later={name}", 1)
        answer = replace(answer, admin_comment=mark or None, ttl_s=0)
    version, log, rest = _encoded(answer).split(b"&", 2)  # what is kept of answers has no id
    return ChildAnswer(
        ending,
        b"%b&%b+id=%b&%b" % (version, log, name.encode(), rest),
        f"{answer.log} id={name}",
        user=request.user,
        job_name=request.name or "",
        open=decider.is_open,
    )


def main() -> None:
    """The process of ``precision-time slurm daemon``; see the head of this file."""
    one_thread_for_algebra()
    path = None if sys.argv[2] == "-" else Path(sys.argv[2])
    run(sys.argv, sys.argv[1], partial(load_policy, path))
