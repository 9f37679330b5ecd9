"""Decisions in one worker thread, each with a deadline, and the answers kept for repeats.

A repeat is also a job of another name or directory, which no decision rests on but by site rules
and similar runs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from queue import SimpleQueue
from urllib.parse import unquote_plus

from ..errors import ProtocolError
from ..protocol import HookAnswer, HookRequest, parse_request
from .loading import JobDecider
from .records import Decided, Ending, Record, words

MAX_WAITING = 32
MAX_KEPT = 1024
KEY_BYTES = 16
REPORT_AFTER_S = 0.002  # the answer leaves, and its connection is closed, before
_NAME = re.compile(rb"&name=([^&\n]*)")
_BY_RULES_ONLY = re.compile(rb"&(?:name|work_dir)=[^&\n]*")
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Pending:
    key: bytes
    line: bytes
    decider: JobDecider
    started_s: float
    decided: asyncio.Future[Decided]
    waiting: int = 0


class Decisions:
    """Answers request lines; lives on an event loop, decides in a thread of its own.

    A decision that is not there ``deadline_s`` after its request is answered without a change to
    the job; it is finished all the same, so that the next identical request is quick. ``report``
    is told of every answer, on the loop.
    """

    def __init__(
        self, decider: JobDecider, deadline_s: float, report: Callable[[Record], None]
    ) -> None:
        self.decider = decider
        self.deadline_s = deadline_s
        self._report = report
        self._by_rules = True
        self._loop = asyncio.get_running_loop()
        self._pending: dict[bytes, _Pending] = {}
        self._kept: OrderedDict[bytes, tuple[float, Decided]] = OrderedDict()
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._ids = (f"{os.getpid():x}-{number}" for number in itertools.count(1))
        self._working_since_s: float | None = None
        self._worker = threading.Thread(target=self._work, name="decisions", daemon=True)
        self._worker.start()

    async def answer(self, line: bytes) -> bytes:
        """The answer to one request line, now or within the deadline."""
        started_s = time.perf_counter()
        decided, ending = await self._answered(line, started_s)
        record = Record(_named(decided, line), ending, time.perf_counter() - started_s)
        self._loop.call_later(REPORT_AFTER_S, self._report, record)
        return decided.line

    async def _answered(self, line: bytes, started_s: float) -> tuple[Decided, Ending]:
        key = self._key(line)
        kept = self._kept_answer(key)
        if kept is not None:
            return kept, Ending.REPEATED
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= MAX_WAITING:
                return _unchanged(next(self._ids), Ending.BUSY), Ending.BUSY
            future: asyncio.Future[Decided] = self._loop.create_future()
            pending = _Pending(key, line, self.decider, started_s, future)
            self._pending[key] = pending
            self._queue.put(pending)
        pending.waiting += 1
        try:
            async with asyncio.timeout(self.deadline_s):
                decided = await asyncio.shield(pending.decided)
                return decided, decided.ending
        except TimeoutError:
            return _unchanged(next(self._ids), Ending.LATE), Ending.LATE
        finally:
            pending.waiting -= 1

    def use(self, decider: JobDecider, deadline_s: float, *, by_rules: bool) -> None:
        """Decide with another decider from now on, and forget what the old one answered.

        ``by_rules`` where site rules or similar runs look at the job's name and directory.
        """
        self.decider, self.deadline_s, self._by_rules = decider, deadline_s, by_rules
        self._kept.clear()

    @property
    def idle(self) -> bool:
        """True while no decision is being made."""
        return not self._pending

    @property
    def stuck_s(self) -> float:
        """For how long the decision in the making has been, in seconds."""
        since_s = self._working_since_s
        return 0.0 if since_s is None else time.perf_counter() - since_s

    def close(self, timeout_s: float = 5.0) -> None:
        """End the worker, once what it does is finished or the timeout has passed."""
        self._queue.put(None)
        self._worker.join(timeout_s)

    def _key(self, line: bytes) -> bytes:
        """What jobs with the same answer have in common."""
        asked = line if self._by_rules else _BY_RULES_ONLY.sub(b"", line)
        return blake2b(asked, digest_size=KEY_BYTES).digest()

    def _kept_answer(self, key: bytes) -> Decided | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] < time.monotonic():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return found[1]

    def _keep(self, key: bytes, decided: Decided) -> None:
        if decided.answer.ttl_s > 0:
            self._kept[key] = (time.monotonic() + decided.answer.ttl_s, decided)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _finished(self, pending: _Pending, decided: Decided) -> None:
        del self._pending[pending.key]
        if pending.decider is self.decider:
            self._keep(pending.key, decided)
        pending.decided.set_result(decided)
        if not pending.waiting:
            elapsed_s = time.perf_counter() - pending.started_s
            self._report(Record(decided, Ending.FINISHED_LATE, elapsed_s))

    def _work(self) -> None:
        while (pending := self._queue.get()) is not None:
            self._working_since_s = time.perf_counter()
            decided = _decide(pending.decider, pending.line, next(self._ids))
            self._working_since_s = None
            try:
                self._loop.call_soon_threadsafe(self._finished, pending, decided)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _decide(decider: JobDecider, line: bytes, name: str) -> Decided:
    """One decision; whatever goes wrong in it, the job goes on unchanged."""
    try:
        request = parse_request(line)
    except ProtocolError as error:
        _log.warning("malformed request %s: %s", name, error)
        return _unchanged(name, Ending.MALFORMED)
    try:
        answer = _possible(decider.decide(request))
        ending = Ending.DECIDED
    except Exception:
        _log.exception("decision %s failed: job %r of %s", name, request.name, request.user)
        answer = HookAnswer(log="outcome=failed", ttl_s=0)
        ending = Ending.FAILED
    return _decided(request, answer, name, ending)


def _decided(
    request: HookRequest, answer: HookAnswer, name: str, ending: Ending = Ending.DECIDED
) -> Decided:
    answer = replace(answer, log=f"{answer.log} id={name}")
    return Decided(
        id=name,
        ending=ending,
        answer=answer,
        line=answer.encode(),
        kind=request.kind,
        user=request.user,
        job_name=request.name or "",
        words=words(answer.log),
    )


def _named(decided: Decided, line: bytes) -> Decided:
    """The same decision for the job of this line."""
    found = _NAME.search(line)
    name = unquote_plus(found[1].decode("utf-8", "replace")) if found else ""
    return decided if name == decided.job_name else replace(decided, job_name=name)


def _possible(answer: HookAnswer) -> HookAnswer:
    """The same answer; raises ValueError for a limit that would end a job at once."""
    for limit in (answer.time_limit, answer.time_min):
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of {limit} min was decided: {answer}")
    return answer


def _unchanged(name: str, ending: Ending) -> Decided:
    answer = HookAnswer(log=f"outcome={ending} id={name}", ttl_s=0)
    return Decided(id=name, ending=ending, answer=answer, line=answer.encode())
