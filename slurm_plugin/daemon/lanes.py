"""The process for decisions that take time.

It is asked one thing at a time, and told the newest view of Slurm in between. One that ends or is
stuck is followed by another; what it was asked then counts as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import SlurmError
from . import started
from .decider_child import ChildAnswer, Ending, unchanged

LOAD_S = 120.0
STUCK_S = 10.0  # processor time is bounded elsewhere: this is a fault of ours
BETWEEN_STARTS_S = 0.5
_log = logging.getLogger(__name__)


class DeciderProcess:
    """One child and its connection."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process, self.channel = started(command)

    def loaded(self) -> str:
        """The version of its predictor, once it can decide; raises SlurmError."""
        version, why = "", f"the process that decides was not ready within {LOAD_S:g} s"
        try:
            if self.channel.poll(LOAD_S):
                version, why = self.channel.recv()
        except (EOFError, OSError) as error:
            why = f"the process that decides has ended: {error}"
        if why:
            raise SlurmError(why)
        return version

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self.channel.close()


@dataclass(slots=True, eq=False)
class Pending:
    """A request line and the id of its decision, which ``decided`` gets if anybody waits."""

    line: bytes
    name: str
    started_s: float
    until_s: float
    decided: asyncio.Future[ChildAnswer]


@dataclass(eq=False)
class Lane:
    """Asks a child one thing after the other, on an event loop.

    ``answered`` gets what was asked with each answer, and nothing when there is another child,
    which ``renew`` makes.
    """

    child: DeciderProcess | None
    renew: Callable[[], DeciderProcess]
    answered: Callable[[Pending | None, ChildAnswer], None]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.asked: Pending | None = None
        self._asked_s = 0.0
        self._view: bytes | None = None
        self._untold = False
        self._closed = False
        assert self.child is not None
        self._use(self.child)

    @property
    def free(self) -> bool:
        """True where it can be asked."""
        return self.asked is None and self.child is not None

    def ask(self, pending: Pending) -> None:
        """Ask; only where it is free."""
        self.asked, self._asked_s = pending, time.perf_counter()
        self._send((pending.line, pending.name))

    def tell(self, view: bytes) -> None:
        """Pass on the newest view of Slurm, now or after the decision in the making."""
        self._view, self._untold = view, True
        self._tell_newest()

    def replace(self, child: DeciderProcess) -> None:
        """Ask another child from now on; what the old one was asked counts as failed."""
        self._drop()
        self._use(child)

    def end_if_stuck(self) -> None:
        """End a child that decides nothing any more."""
        if self.asked is not None and time.perf_counter() - self._asked_s > STUCK_S:
            _log.error("a decision did not end within %g s: its process is ended", STUCK_S)
            self._lost()

    def close(self) -> None:
        """End the child."""
        self._closed = True
        self._drop()

    def _use(self, child: DeciderProcess) -> None:
        self.child = child
        self._loop.add_reader(child.channel.fileno(), self._read)
        self._untold = self._view is not None
        self._tell_newest()

    def _tell_newest(self) -> None:
        """A child that is free reads what it is sent at once, so that this never waits."""
        if self._untold and self.free:
            self._untold = False
            self._send(self._view)

    def _send(self, said: tuple[bytes, str] | bytes | None) -> None:
        assert self.child is not None
        try:
            self.child.channel.send_bytes(pickle.dumps(said))
        except OSError:
            self._loop.call_soon(self._lost)

    def _drop(self) -> None:
        """End the child; what it was asked counts as failed."""
        child, self.child = self.child, None
        if child is not None:
            self._loop.remove_reader(child.channel.fileno())
            child.close()
        asked, self.asked = self.asked, None
        if asked is not None:
            self.answered(asked, unchanged(Ending.FAILED, asked.name))

    def _read(self) -> None:
        assert self.child is not None
        try:
            said = self.child.channel.recv()
        except (EOFError, OSError):
            self._lost()
            return
        asked, self.asked = self.asked, None
        self._tell_newest()
        if asked is not None:
            self.answered(asked, said)

    def _lost(self) -> None:
        if self.child is None:
            return
        self._drop()
        if not self._closed:
            self._loop.create_task(self._start_anew())

    async def _start_anew(self) -> None:
        pause_s = BETWEEN_STARTS_S
        while not self._closed:
            await asyncio.sleep(pause_s)
            child = None
            try:
                child = await asyncio.to_thread(self.renew)
                await asyncio.to_thread(child.loaded)
            except (SlurmError, OSError) as error:
                _log.warning("no process to decide: %s", error)
                pause_s = min(2 * pause_s, 30.0)
                if child is not None:
                    child.close()
                continue
            self._use(child)
            self.answered(None, unchanged(Ending.FAILED, ""))
            return
