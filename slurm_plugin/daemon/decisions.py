"""Decisions with a deadline.

Requests wait in a queue a user, served in turns, so that nobody waits for the hundred scripts of
another. What is not decided in time, or needs a prediction that was never made, is answered as far
as it goes and finished aside, by a process of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from predictor.service.process import DeadlineError, time_bound

from ..estimate import MadeBefore
from ..mark import MARK_HEAD
from ..protocol import HookAnswer, parse_answer
from .decider_child import ChildAnswer, Ending, decided, unchanged
from .lanes import DeciderProcess, Lane, Pending

if TYPE_CHECKING:
    from ..decide import SlurmDecider

MAX_WAITING, MAX_WAITING_OF_USER = 256, 32
MAX_LATER = 16_384
MARGIN_S = 0.010  # of what the hook waits, for the way back on a busy host
REPORT_AFTER_S = 0.002  # the answer leaves, and its connection is closed, before
_FIELD = r"(?:^|&)%s=([^&\n]*)"
_NAME, _USER, _LIMIT, _WITHIN = (
    re.compile((_FIELD % name).encode()) for name in ("name", "user", "time_limit", "within")
)


class FairQueue:
    """What waits, by user: each gets a turn."""

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, deque[Pending]] = OrderedDict()

    def add(self, pending: Pending) -> bool:
        """Let it wait; False where too much does."""
        user, waiting = _field(_USER, pending.line), sum(map(len, self._of.values()))
        if waiting >= MAX_WAITING or len(self._of.get(user, ())) >= MAX_WAITING_OF_USER:
            return False
        self._of.setdefault(user, deque()).append(pending)
        return True

    def next(self) -> Pending | None:
        """The first of the user whose turn it is, None where nothing waits."""
        if not self._of:
            return None
        user, mine = self._of.popitem(last=False)
        found = mine.popleft()
        if mine:
            self._of[user] = mine
        return found


@dataclass(eq=False)
class Decisions:
    """Answers request lines; lives on an event loop of the main thread.

    A decision that is not there ``deadline_s`` after its request, or shortly before the hook gives
    up, is answered with no more than a mark, one that needs a new prediction ``prediction_s``
    later with all but that; both are finished all the same, ``aside``. ``report`` is told the id
    of every answer and the seconds from the last byte of its request, ``finished`` whenever
    something was finished after its answer, both on the loop.
    """

    decider: SlurmDecider
    child: InitVar[DeciderProcess]
    renew: InitVar[Callable[[], DeciderProcess]]
    report: Callable[[str, ChildAnswer, float], None]
    finished: Callable[[], None] = lambda: None

    def __post_init__(self, child: DeciderProcess, renew: Callable[[], DeciderProcess]) -> None:
        self.deadline_s, self.prediction_s = 0.04, 0.0
        self._loop = asyncio.get_running_loop()
        self._later: OrderedDict[str, HookAnswer | None] = OrderedDict()
        self._queue, self._aside_queue = FairQueue(), FairQueue()
        self._in_turns = False
        self._ids = (f"{os.getpid():x}-{number}" for number in itertools.count(1))
        self.aside = Lane(child, renew, self._answered)

    def at_once(self, line: bytes) -> bytes | None:
        """The answer to one request line; None where it has to wait."""
        if self._in_turns:
            return None
        found = self._found(pending := self._made(line))
        if found.open and self.prediction_s > 0:
            return None
        self._settle(pending, found)
        return self._told(pending, found)

    async def answer(self, line: bytes) -> bytes:
        """The answer to one request line when it is its turn, within the deadline."""
        pending = self._made(line)
        if not self._queue.add(pending):
            pending.decided.set_result(_later("hook", line, Ending.BUSY))
        elif not self._in_turns:
            self._in_turns = True
            self._loop.call_soon(self._turn)
        return self._told(pending, await pending.decided)

    def _told(self, pending: Pending, found: ChildAnswer) -> bytes:
        elapsed_s = time.perf_counter() - pending.started_s
        self._loop.call_later(REPORT_AFTER_S, self.report, pending.name, found, elapsed_s)
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

    def use(self, decider: SlurmDecider, aside: DeciderProcess) -> None:
        """Decide with others from now on."""
        self.decider = decider
        self.aside.replace(aside)
        self._pump()

    @property
    def idle(self) -> bool:
        """True while nobody's decision is being made."""
        return self.aside.asked is None and not self._in_turns

    def _made(self, line: bytes) -> Pending:
        started_s, deadline_s = time.perf_counter(), self.deadline_s
        if (within := _field(_WITHIN, line)).isdigit():
            deadline_s = min(deadline_s, max(0.0, int(within) / 1000 - MARGIN_S))
        until_s, future = started_s + deadline_s, self._loop.create_future()
        return Pending(line, next(self._ids), started_s, until_s, future)

    def _turn(self) -> None:
        """Decide the next that waits; who comes meanwhile is heard before the one after."""
        pending = self._queue.next()
        self._in_turns = pending is not None
        if pending is not None:
            self._loop.call_later(0, self._turn)  # after what has arrived
            self._settle(pending, self._found(pending))

    def _found(self, pending: Pending) -> ChildAnswer:
        """The answer as far as it goes within the deadline."""
        try:
            with time_bound(pending.until_s - time.perf_counter()):
                return decided(self.decider, pending.line, pending.name)
        except DeadlineError:
            signal.signal(signal.SIGPROF, signal.SIG_IGN)  # a reading broken off leaves its timer
            return _later(pending.name, pending.line, Ending.LATE)

    def _pump(self) -> None:
        """Ask aside about what waits for that."""
        if self.aside.free and (pending := self._aside_queue.next()) is not None:
            self.aside.ask(pending)

    def _give(self, pending: Pending, found: ChildAnswer) -> None:
        if not pending.decided.done():
            pending.decided.set_result(found)

    def _settle(self, pending: Pending, found: ChildAnswer) -> None:
        """Answer whoever waits; of a job that has passed keep what it should have got."""
        if found.open or found.ending is Ending.LATE:
            self._later[pending.name] = None
            if len(self._later) > MAX_LATER:
                self._later.popitem(last=False)
            if self._aside_queue.add(pending):
                self._loop.call_soon(self._pump)
            else:
                del self._later[pending.name]
        if found.open and self.prediction_s > 0:
            self._loop.call_later(self.prediction_s, self._give, pending, found)
        elif not pending.decided.done():
            self._give(pending, found)
        else:
            if found.ending is Ending.DECIDED:
                self._later[pending.name] = parse_answer(found.line)
            else:
                self._later.pop(pending.name, None)  # it is decided anew
            elapsed_s = time.perf_counter() - pending.started_s
            found = found._replace(ending=Ending.FINISHED_LATE)
            self.report(pending.name, found, elapsed_s)
            self.finished()

    def _answered(self, pending: Pending | None, found: ChildAnswer) -> None:
        if isinstance(self.decider.predictor, MadeBefore):
            self.decider.predictor.take(found.made)
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
