"""Decisions with a deadline, made by processes of their own, and the answers kept for repeats.

A repeat is also a job of another name or directory, which no decision rests on but by site rules
and similar runs. Requests wait in a queue a user, served in turns, so that nobody waits for the
hundred scripts of another. What is not decided in time, or needs a prediction that was never made,
is answered as far as it goes and finished aside.
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
from hashlib import blake2b
from urllib.parse import unquote_plus

from ..cluster import Cluster
from ..mark import MARK_HEAD
from ..protocol import HookAnswer
from .decider_child import Asked, ChildAnswer
from .lanes import DeciderProcess, Lane
from .records import Decided, Ending, Record, words

MAX_WAITING, MAX_WAITING_OF_USER = 256, 32
MAX_KEPT, MAX_LATER = 1024, 16_384
KEY_BYTES = 16
REPORT_AFTER_S = 0.002  # the answer leaves, and its connection is closed, before
_FIELD = r"(?:^|&)%s=([^&\n]*)"
_NAME, _USER, _LIMIT, _KIND = (
    re.compile((_FIELD % name).encode()) for name in ("name", "user", "time_limit", "kind")
)
_BY_RULES_ONLY = re.compile(rb"&(?:name|work_dir)=[^&\n]*")


@dataclass(slots=True, eq=False)
class _Pending:
    key: bytes
    line: bytes
    name: str
    started_s: float
    decided: asyncio.Future[Decided]
    waiting: int = 0
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

    A decision that is not there ``deadline_s`` after its request is answered with no more than a
    mark, one that needs a new prediction ``prediction_s`` later with all but that; both are
    finished all the same. ``report`` is told of every answer, ``finished`` whenever
    something was finished after its answer, both on the loop.
    """

    def __init__(
        self,
        now: DeciderProcess,
        aside: DeciderProcess,
        renew: Callable[[bool], DeciderProcess],
        report: Callable[[Record], None],
        finished: Callable[[ChildAnswer | None], None] = lambda _: None,
    ) -> None:
        self.deadline_s, self.prediction_s = 0.04, 0.0
        self._report, self._tell_finished = report, finished
        self._by_names = True
        self._loop = asyncio.get_running_loop()
        self._pending: dict[bytes, _Pending] = {}
        self._kept: OrderedDict[bytes, tuple[float, Decided]] = OrderedDict()
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
        pending = _Pending(b"", line, next(self._ids), time.perf_counter(), future, aside=True)
        if not self._aside_queue.add(pending):
            return None
        self._pump()
        return (await future).answer

    def later(self, name: str) -> tuple[bool, HookAnswer | None]:
        """Whether a decision of this id is known of, and its answer once it was finished."""
        return name in self._later, self._later.get(name)

    async def _answered(self, line: bytes, started_s: float) -> tuple[Decided, Ending]:
        key = self._key(line)
        kept = self._kept_answer(key)
        if kept is not None:
            return kept, Ending.REPEATED
        pending = self._pending.get(key)
        if pending is None:
            future: asyncio.Future[Decided] = self._loop.create_future()
            pending = _Pending(key, line, next(self._ids), started_s, future)
            if not self._queue.add(pending):
                return _later("hook", line, Ending.BUSY), Ending.BUSY
            self._pending[key] = pending
            self._pump()
        pending.waiting += 1
        try:
            async with asyncio.timeout(self.deadline_s):
                decided = await asyncio.shield(pending.decided)
                return decided, decided.ending
        except TimeoutError:
            if pending.decided.done():  # in this very moment
                decided = pending.decided.result()
                return decided, decided.ending
            self._expect(pending.name)
            return _later(pending.name, line, Ending.LATE), Ending.LATE
        finally:
            pending.waiting -= 1

    def use(self, now: DeciderProcess, aside: DeciderProcess) -> None:
        """Decide with other processes from now on."""
        self.now.replace(now)
        self.aside.replace(aside)
        self._pump()

    def set(self, deadline_s: float, prediction_s: float, *, by_names: bool) -> None:
        """Forget what was answered. ``by_names`` where a job's name and directory matter."""
        self.deadline_s, self.prediction_s = deadline_s, prediction_s
        self._by_names = by_names
        self._kept.clear()

    @property
    def idle(self) -> bool:
        """True while nobody's decision is being made."""
        return not self._pending

    def tell(self, view: Cluster) -> None:
        """Pass on the newest view of Slurm; from any thread."""
        self.now.tell(view)
        self.aside.tell(view)

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

    def _key(self, line: bytes) -> bytes:
        """What jobs with the same answer have in common."""
        asked = line if self._by_names else _BY_RULES_ONLY.sub(b"", line)
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
        self._tell_finished(found)
        if not found.open:
            self._settle(pending, found, _decided(found, pending.name))
            return
        self._expect(pending.name)
        decided = _decided(_open(found, pending.name), pending.name)
        if not self._aside_queue.add(pending):
            del self._later[pending.name]
        if self.prediction_s > 0 and pending.waiting:
            self._loop.call_later(self.prediction_s, self._settle, pending, found, decided)
        else:
            self._settle(pending, found, decided)

    def _settle(self, pending: _Pending, found: ChildAnswer, decided: Decided) -> None:
        """Answer whoever waits, unless that was done."""
        if pending.decided.done():
            return
        del self._pending[pending.key]
        self._keep(pending.key, decided)
        pending.decided.set_result(decided)
        if not pending.waiting:
            self._finished_late(pending, found, decided)

    def _answered_aside(self, asked: Asked, found: ChildAnswer) -> None:
        self.now.know(found.made)
        pending = self._asked.pop(asked.name, None)
        if pending is not None:
            self._tell_finished(found)
            decided = _decided(found, pending.name)
            if pending.aside:
                pending.decided.set_result(decided)
            elif not pending.decided.done():
                self._settle(pending, found, decided)
            else:
                self._keep(pending.key, decided)
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
        self._tell_finished(None)


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
    limit, kind = _LIMIT.search(line), _KIND.search(line)
    own = limit[1].decode("ascii", "replace") if limit else "none"
    is_new = kind is None or kind[1] == b"submit"
    comment = f"{MARK_HEAD} later={name} own={own}" if is_new and own.isalnum() else None
    answer = HookAnswer(log=f"outcome={ending} id={name}", ttl_s=0, admin_comment=comment)
    return Decided(id=name, ending=ending, answer=answer, line=answer.encode())


def _user(line: bytes) -> bytes:
    found = _USER.search(line)
    return found[1] if found else b""
