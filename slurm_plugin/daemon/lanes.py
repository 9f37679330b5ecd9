"""The two processes that decide: one that answers slurmctld now, one for what takes time.

Each is asked one thing at a time, and told the newest view of Slurm in between. One that ends or is
stuck is followed by another; what it was asked then counts as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence

from predictor.errors import PrecisionTimeError

from ..estimate import Made
from . import started
from .decider_child import ASIDE, Asked, ChildAnswer, Ending, Ready, unchanged

LOAD_S = 120.0
STUCK_S = 10.0  # processor time is bounded elsewhere: this is a fault of ours
BETWEEN_STARTS_S = 0.5
_log = logging.getLogger(__name__)


class LoadError(PrecisionTimeError):
    """A process could not read what it decides by; the message names the file."""


class DeciderProcess:
    """One child and its connection."""

    def __init__(self, command: Sequence[str], aside: bool) -> None:
        self.aside = aside
        self._process, self.channel = started((*command, ASIDE if aside else "now"))

    def loaded(self) -> Ready:
        """Wait until it can decide; raises LoadError."""
        try:
            if self.channel.poll(LOAD_S):
                said = self.channel.recv()
                if isinstance(said, Ready):
                    return said
                raise LoadError(said)
        except (EOFError, OSError) as error:
            raise LoadError(f"the process that decides has ended: {error}") from None
        raise LoadError(f"the process that decides was not ready within {LOAD_S:g} s")

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self.channel.close()


class Lane:
    """Asks a child one thing after the other, on an event loop.

    ``answered`` gets what was asked with each answer. ``renew`` makes another child.
    """

    def __init__(
        self,
        child: DeciderProcess,
        renew: Callable[[bool], DeciderProcess],
        answered: Callable[[Asked, ChildAnswer], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._renew = renew
        self._answered = answered
        self._asked: Asked | None = None
        self._asked_s = 0.0
        self._made: deque[Made] = deque(maxlen=4096)
        self._view: bytes | None = None
        self._untold = False
        self._closed = False
        self._use(child)

    @property
    def free(self) -> bool:
        """True where it can be asked."""
        return self._asked is None and self._child is not None

    def ask(self, line: bytes, name: str) -> None:
        """Ask; only where it is free."""
        self._asked, self._asked_s = Asked(line, name, tuple(self._made)), time.perf_counter()
        self._made.clear()
        self._send(self._asked)

    def know(self, made: Sequence[Made]) -> None:
        """Tell it of predictions with the next question."""
        self._made.extend(made)

    def tell(self, view: bytes) -> None:
        """Pass on the newest view of Slurm, now or after the decision in the making."""
        self._view, self._untold = view, True
        self._tell_newest()

    def replace(self, child: DeciderProcess) -> None:
        """Ask another child from now on; what the old one was asked counts as failed."""
        self._drop()
        self._fail()
        self._use(child)

    def end_if_stuck(self) -> None:
        """End a child that decides nothing any more."""
        if self._asked is not None and time.perf_counter() - self._asked_s > STUCK_S:
            _log.error("a decision did not end within %g s: its process is ended", STUCK_S)
            self._lost()

    def close(self) -> None:
        """End the child."""
        self._closed = True
        self._drop()

    def _use(self, child: DeciderProcess) -> None:
        self._child: DeciderProcess | None = child
        self._loop.add_reader(child.channel.fileno(), self._read)
        self._untold = self._view is not None
        self._tell_newest()

    def _tell_newest(self) -> None:
        """A child that is free reads what it is sent at once, so that this never waits."""
        if self._untold and self.free:
            self._untold = False
            self._send(self._view)

    def _send(self, said: Asked | bytes | None) -> None:
        assert self._child is not None
        try:
            self._child.channel.send_bytes(pickle.dumps(said))
        except OSError:
            self._loop.call_soon(self._lost)

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            self._loop.remove_reader(child.channel.fileno())
            child.close()

    def _read(self) -> None:
        assert self._child is not None
        try:
            said = self._child.channel.recv()
        except (EOFError, OSError):
            self._lost()
            return
        asked, self._asked = self._asked, None
        self._tell_newest()
        if asked is not None:
            self._answered(asked, said)

    def _lost(self) -> None:
        if self._child is None:
            return
        aside = self._child.aside
        self._drop()
        self._fail()
        if not self._closed:
            self._loop.create_task(self._start_anew(aside))

    async def _start_anew(self, aside: bool) -> None:
        pause_s = BETWEEN_STARTS_S
        while not self._closed:
            await asyncio.sleep(pause_s)
            child = None
            try:
                child = await asyncio.to_thread(self._renew, aside)
                await asyncio.to_thread(child.loaded)
            except (LoadError, OSError) as error:
                _log.warning("no process to decide: %s", error)
                pause_s = min(2 * pause_s, 30.0)
                if child is not None:
                    child.close()
                continue
            self._use(child)
            self._answered(Asked(b"", ""), unchanged(Ending.FAILED, ""))
            return

    def _fail(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            self._answered(asked, unchanged(Ending.FAILED, asked.name))
