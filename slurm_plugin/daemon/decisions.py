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
from dataclasses import dataclass, replace
from urllib.parse import unquote_plus

from ..mark import MARK_HEAD
from ..protocol import HookAnswer
from .decider_child import Asked, ChildAnswer, Decided, Ending, Record, words
from .lanes import DeciderProcess, Lane

MAX_WAITING, MAX_WAITING_OF_USER = 256, 32
MAX_LATER = 16_384
MARGIN_S = 0.010  # of what the hook waits, for the way back on a busy host
REPORT_AFTER_S = 0.002  # the answer leaves, and its connection is closed, before
_FIELD = r"(?:^|&)%s=([^&\n]*)"
_NAME, _USER, _LIMIT, _WITHIN = (
    re.compile((_FIELD % name).encode()) for name in ("name", "user", "time_limit", "within")
)


@dataclass(slots=True, eq=False)
class _Pending:
    line: bytes
    name: str
    started_s: float
    decided: asyncio.Future[Decided]
    waits: bool = True
    aside: bool = False


class FairQueue:
    """What waits, by user: each gets a turn."""

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, deque[_Pending]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pending: _Pending) -> bool:
        """Let it wait; False where too much does."""
        user = _user(pending.line)
        mine = self._of.get(user)
        if self._size >= MAX_WAITING or (mine is not None and len(mine) >= MAX_WAITING_OF_USER):
            return False
        self._of.setdefault(user, deque()).append(pending)
        self._size += 1
        return True

    def next(self) -> _Pending:
        """The first of the user whose turn it is."""
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
        self._pending: set[_Pending] = set()
        self._later: OrderedDict[str, HookAnswer | None] = OrderedDict()
        self._queue, self._aside_queue = FairQueue(), FairQueue()
        self._asked: dict[str, _Pending] = {}
        self._ids = (f"{os.getpid():x}-{number}" for number in itertools.count(1))
        self.now = Lane(now, renew, self._answered_now)
        self.aside = Lane(aside, renew, self._answered_aside)

    async def answer(self, line: bytes) -> bytes:
        """The answer to one request line, now or within the deadline."""
        started_s = time.perf_counter()
        decided, ending = await self._answered(line, started_s)
        record = Record(_named(decided, line), ending, time.perf_counter() - started_s)
        self._loop.call_later(REPORT_AFTER_S, self._report, record)
        return decided.line

    async def decide_aside(self, line: bytes) -> HookAnswer | None:
        """The whole answer to a request for which nobody waits; None where too much does."""
        future: asyncio.Future[Decided] = self._loop.create_future()
        pending = _Pending(line, next(self._ids), time.perf_counter(), future, aside=True)
        if not self._aside_queue.add(pending):
            return None
        self._pump()
        return (await future).answer

    def later(self, name: str) -> tuple[bool, HookAnswer | None]:
        """Whether a decision of this id is known of, and its answer once it was finished."""
        return name in self._later, self._later.get(name)

    async def _answered(self, line: bytes, started_s: float) -> tuple[Decided, Ending]:
        future: asyncio.Future[Decided] = self._loop.create_future()
        pending = _Pending(line, next(self._ids), started_s, future)
        if not self._queue.add(pending):
            return _later("hook", line, Ending.BUSY), Ending.BUSY
        self._pending.add(pending)
        self._pump()
        try:
            async with asyncio.timeout(self._deadline_s(line)):
                await asyncio.shield(future)
        except TimeoutError:
            if not future.done():  # in this very moment
                pending.waits = False
                self._expect(pending.name)
                return _later(pending.name, line, Ending.LATE), Ending.LATE
        decided = future.result()
        return decided, decided.ending

    def _deadline_s(self, line: bytes) -> float:
        found = _WITHIN.search(line)
        if found is None or not found[1].isdigit():
            return self.deadline_s
        return min(self.deadline_s, max(0.0, int(found[1]) / 1000 - MARGIN_S))

    def use(self, now: DeciderProcess, aside: DeciderProcess) -> None:
        """Decide with other processes from now on."""
        self.now.replace(now)
        self.aside.replace(aside)
        self._pump()

    @property
    def idle(self) -> bool:
        """True while nobody's decision is being made."""
        return not self._pending

    def tell(self, pieces: tuple[bytes, ...]) -> None:
        """Pass on the newest view of Slurm; from any thread."""
        self.now.tell(pieces)
        self.aside.tell(pieces)

    def end_if_stuck(self) -> None:
        """End processes that decide nothing any more."""
        self.now.end_if_stuck()
        self.aside.end_if_stuck()

    def close(self) -> None:
        """End the processes."""
        self.now.close()
        self.aside.close()

    def _pump(self) -> None:
        """Ask the processes that are free about what waits."""
        for lane, queue in ((self.now, self._queue), (self.aside, self._aside_queue)):
            if lane.free and len(queue):
                pending = queue.next()
                self._asked[pending.name] = pending
                lane.ask(pending.line, pending.name)

    def _expect(self, name: str) -> None:
        """A mark with this id was given out."""
        self._later.setdefault(name, None)
        while len(self._later) > MAX_LATER:
            self._later.popitem(last=False)

    def _answered_now(self, asked: Asked, found: ChildAnswer) -> None:
        pending = self._asked.pop(asked.name, None)
        if pending is not None:
            self._finish_now(pending, found)
        self._pump()

    def _finish_now(self, pending: _Pending, found: ChildAnswer) -> None:
        if not found.open:
            self._settle(pending, found, _decided(found, pending.name))
            return
        self._expect(pending.name)
        decided = _decided(_open(found, pending.name), pending.name)
        if not self._aside_queue.add(pending):
            del self._later[pending.name]
        if self.prediction_s > 0 and pending.waits:
            self._loop.call_later(self.prediction_s, self._settle, pending, found, decided)
        else:
            self._settle(pending, found, decided)

    def _settle(self, pending: _Pending, found: ChildAnswer, decided: Decided) -> None:
        """Answer whoever waits, unless that was done."""
        if pending.decided.done():
            return
        self._pending.discard(pending)
        pending.decided.set_result(decided)
        if not pending.waits:
            self._finished_late(pending, found, decided)

    def _answered_aside(self, asked: Asked, found: ChildAnswer) -> None:
        self.now.know(found.made)
        pending = self._asked.pop(asked.name, None)
        if pending is not None:
            decided = _decided(found, pending.name)
            if pending.aside:
                pending.decided.set_result(decided)
            elif not pending.decided.done():
                self._settle(pending, found, decided)
            else:
                self._finished_late(pending, found, decided)
        self._pump()

    def _finished_late(self, pending: _Pending, found: ChildAnswer, decided: Decided) -> None:
        """The job has passed: keep what it should have got."""
        if found.ending is not Ending.DECIDED:
            self._later.pop(pending.name, None)  # it is decided anew
        elif not found.open:
            self._later[pending.name] = found.answer
        elapsed_s = time.perf_counter() - pending.started_s
        self._report(Record(decided, Ending.FINISHED_LATE, elapsed_s))
        self._tell_finished()


def _decided(found: ChildAnswer, name: str) -> Decided:
    answer = replace(found.answer, log=f"{found.answer.log} id={name}")
    return Decided(
        id=name,
        ending=found.ending,
        answer=answer,
        line=answer.encode(),
        kind=found.kind,
        user=found.user,
        job_name=found.job_name,
        words=words(answer.log),
    )


def _open(found: ChildAnswer, name: str) -> ChildAnswer:
    """The answer of which a prediction is still to come: not repeated, and found by its mark."""
    comment = found.answer.admin_comment
    if comment is not None:
        comment = comment.replace(MARK_HEAD, f"{MARK_HEAD} later={name}", 1)
    return replace(found, answer=replace(found.answer, admin_comment=comment, ttl_s=0))


def _named(decided: Decided, line: bytes) -> Decided:
    """The same decision for the job of this line."""
    found = _NAME.search(line)
    name = unquote_plus(found[1].decode("utf-8", "replace")) if found else ""
    return decided if name == decided.job_name else replace(decided, job_name=name)


def _later(name: str, line: bytes, ending: Ending) -> Decided:
    """No decision yet: a mark, by which the job is found when there is one."""
    limit = _LIMIT.search(line)
    own = limit[1].decode("ascii", "replace") if limit else "none"
    comment = f"{MARK_HEAD} later={name} own={own}" if own.isalnum() else None
    answer = HookAnswer(log=f"outcome={ending} id={name}", ttl_s=0, admin_comment=comment)
    return Decided(id=name, ending=ending, answer=answer, line=answer.encode())


def _user(line: bytes) -> bytes:
    found = _USER.search(line)
    return found[1] if found else b""
