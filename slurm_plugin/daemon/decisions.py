"""Decisions with a deadline, made by processes of their own.

Requests wait in a queue a user, served in turns, so that nobody waits for the hundred scripts of
another. What is not decided in time, or needs a prediction that was never made, is answered as far
as it goes and finished aside.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote_plus

from ..mark import MARK_HEAD
from ..protocol import HookAnswer, parse_answer
from .decider_child import Asked, ChildAnswer, Ending, unchanged
from .lanes import DeciderProcess, Lane

MAX_WAITING, MAX_WAITING_OF_USER = 256, 32
MAX_LATER = 16_384
MARGIN_S = 0.010  # of what the hook waits, for the way back on a busy host
REPORT_AFTER_S = 0.002  # the answer leaves, and its connection is closed, before
_FIELD = r"(?:^|&)%s=([^&\n]*)"
_NAME, _USER, _LIMIT, _WITHIN = (
    re.compile((_FIELD % name).encode()) for name in ("name", "user", "time_limit", "within")
)


@dataclass(frozen=True, slots=True)
class Record:
    """One request that was answered; ``duration_s`` from its last byte to its answer.

    ``id`` is in the answer's ``log`` too, so that a line of slurmctld.log leads to ours.
    """

    id: str
    found: ChildAnswer
    duration_s: float

    @property
    def words(self) -> dict[str, str]:
        """The ``key=value`` words of the answer's log: model, gpu, tier, limit, reason."""
        pairs = (word.partition("=") for word in self.found.log.split(" "))
        return {key: value for key, equals, value in pairs if equals and key}


@dataclass(slots=True, eq=False)
class _Pending:
    line: bytes
    name: str
    started_s: float
    decided: asyncio.Future[ChildAnswer]  # done where nobody waits any more


class FairQueue:
    """What waits, by user: each gets a turn."""

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, deque[_Pending]] = OrderedDict()
        self._size = 0

    def add(self, pending: _Pending) -> bool:
        """Let it wait; False where too much does."""
        user = _field(_USER, pending.line)
        if self._size >= MAX_WAITING or len(self._of.get(user, ())) >= MAX_WAITING_OF_USER:
            return False
        self._of.setdefault(user, deque()).append(pending)
        self._size += 1
        return True

    def next(self) -> _Pending | None:
        """The first of the user whose turn it is, None where nothing waits."""
        if not self._of:
            return None
        user, mine = self._of.popitem(last=False)
        self._size -= 1
        found = mine.popleft()
        if mine:
            self._of[user] = mine
        return found


class Decisions:
    """Answers request lines; lives on an event loop, decides in the processes it is given.

    A decision that is not there ``deadline_s`` after its request, or shortly before the hook gives
    up, is answered with no more than a mark, one that needs a new prediction ``prediction_s``
    later with all but that; both are finished all the same. ``report`` is told of every answer,
    ``finished`` whenever something was finished after its answer, both on the loop.
    """

    def __init__(
        self,
        now: DeciderProcess,
        aside: DeciderProcess,
        renew: Callable[[bool], DeciderProcess],
        report: Callable[[Record], None],
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self.deadline_s, self.prediction_s = 0.04, 0.0
        self._report, self._tell_finished = report, finished
        self._loop = asyncio.get_running_loop()
        self._later: OrderedDict[str, HookAnswer | None] = OrderedDict()
        self._queue, self._aside_queue = FairQueue(), FairQueue()
        self._asked: dict[str, _Pending] = {}
        self._ids = (f"{os.getpid():x}-{number}" for number in itertools.count(1))
        self._now = Lane(now, renew, self._answered_now)
        self._aside = Lane(aside, renew, self._answered_aside)
        self.lanes = (self._now, self._aside)

    async def answer(self, line: bytes) -> bytes:
        """The answer to one request line, now or within the deadline."""
        pending, deadline_s = self._made(line), self.deadline_s
        if (within := _field(_WITHIN, line)).isdigit():
            deadline_s = min(deadline_s, max(0.0, int(within) / 1000 - MARGIN_S))
        if self._queue.add(pending):
            self._pump()
            late: asyncio.Handle = self._loop.call_later(deadline_s, self._late, pending)
        else:
            late = self._loop.call_soon(self._give, pending, _later("hook", line, Ending.BUSY))
        found = await pending.decided
        late.cancel()
        elapsed_s = time.perf_counter() - pending.started_s
        self._loop.call_later(REPORT_AFTER_S, self._report, Record(pending.name, found, elapsed_s))
        return found.line

    async def decide_aside(self, line: bytes) -> HookAnswer | None:
        """The whole answer to a request for which nobody waits; None where too much does."""
        pending = self._made(line)
        if not self._aside_queue.add(pending):
            return None
        self._pump()
        return parse_answer((await pending.decided).line)

    def later(self, name: str) -> tuple[bool, HookAnswer | None]:
        """Whether a decision of this id is known of, and its answer once it was finished."""
        return name in self._later, self._later.get(name)

    def use(self, now: DeciderProcess, aside: DeciderProcess) -> None:
        """Decide with other processes from now on."""
        self._now.replace(now)
        self._aside.replace(aside)
        self._pump()

    @property
    def idle(self) -> bool:
        """True while nobody's decision is being made."""
        return not self._asked

    def _made(self, line: bytes) -> _Pending:
        return _Pending(line, next(self._ids), time.perf_counter(), self._loop.create_future())

    def _late(self, pending: _Pending) -> None:
        if not pending.decided.done():
            self._expect(pending.name)
            self._give(pending, _later(pending.name, pending.line, Ending.LATE))

    def _pump(self) -> None:
        """Ask the processes that are free about what waits."""
        for lane, queue in ((self._now, self._queue), (self._aside, self._aside_queue)):
            if lane.free and (pending := queue.next()) is not None:
                self._asked[pending.name] = pending
                lane.ask(pending.line, pending.name)

    def _expect(self, name: str) -> None:
        """A mark with this id was given out."""
        self._later.setdefault(name, None)
        while len(self._later) > MAX_LATER:
            self._later.popitem(last=False)

    def _answered_now(self, asked: Asked, found: ChildAnswer) -> None:
        pending = self._asked.pop(asked.name, None)
        if pending is not None and not found.open:
            self._settle(pending, found)
        elif pending is not None:
            self._expect(pending.name)
            if not self._aside_queue.add(pending):
                del self._later[pending.name]
            if self.prediction_s > 0:
                self._loop.call_later(self.prediction_s, self._give, pending, found)
            else:
                self._settle(pending, found)
        self._pump()

    def _give(self, pending: _Pending, found: ChildAnswer) -> bool:
        """Answer whoever waits; False where nobody does any more."""
        if pending.decided.done():
            return False
        pending.decided.set_result(found)
        return True

    def _settle(self, pending: _Pending, found: ChildAnswer) -> None:
        """Answer whoever waits; of a job that has passed keep what it should have got."""
        if self._give(pending, found):
            return
        if found.ending is not Ending.DECIDED:
            self._later.pop(pending.name, None)  # it is decided anew
        elif not found.open:
            self._later[pending.name] = parse_answer(found.line)
        elapsed_s = time.perf_counter() - pending.started_s
        found = found._replace(ending=Ending.FINISHED_LATE)
        self._report(Record(pending.name, found, elapsed_s))
        self._tell_finished()

    def _answered_aside(self, asked: Asked, found: ChildAnswer) -> None:
        self._now.know(found.made)
        pending = self._asked.pop(asked.name, None)
        if pending is not None:
            self._settle(pending, found)
        self._pump()


def _later(name: str, line: bytes, ending: Ending) -> ChildAnswer:
    """No decision yet: a mark, by which the job is found when there is one."""
    own = _field(_LIMIT, line).decode("ascii", "replace") or "none"
    comment = f"{MARK_HEAD} later={name} own={own}" if own.isalnum() else None
    job_name = unquote_plus(_field(_NAME, line).decode("utf-8", "replace"))
    return unchanged(ending, name, job_name, comment)


def _field(pattern: re.Pattern[bytes], line: bytes) -> bytes:
    found = pattern.search(line)
    return found[1] if found else b""
