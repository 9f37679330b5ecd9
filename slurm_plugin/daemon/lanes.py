"""The two processes that decide: one that answers slurmctld now, one for what takes time.

Each is asked one thing at a time and told the newest view of Slurm beside it. One that ends or is
stuck is followed by another; what it was asked then counts as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from queue import Empty, Queue

from predictor.errors import PrecisionTimeError

from ..estimate import Made
from ..protocol import HookAnswer
from .decider_child import Asked, ChildAnswer, Ending, Ready, Start, Unable

LOAD_S = 120.0
STUCK_S = 10.0  # processor time is bounded elsewhere: this is a fault of ours
BETWEEN_STARTS_S = 0.5
_log = logging.getLogger(__name__)


class LoadError(PrecisionTimeError):
    """A process could not read what it decides by; the message names the file."""


class DeciderProcess:
    """One child and its connections; ``ready`` once it has loaded."""

    def __init__(self, command: Sequence[str], *, aside: bool) -> None:
        ours, theirs = socket.socketpair()
        our_views, their_views = socket.socketpair()
        self.aside = aside
        self.process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(their_views.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), their_views.fileno()),
            start_new_session=True,
        )
        theirs.close()
        their_views.close()
        self.channel = Connection(os.dup(ours.fileno()))
        self._views = Connection(os.dup(our_views.fileno()))
        ours.close()
        our_views.close()
        self._waiting: Queue[tuple[bytes, ...]] = Queue()
        self._closed = threading.Event()
        self._sender = threading.Thread(target=self._send_views, name="views", daemon=True)
        self._sender.start()
        self.channel.send(Start(aside))

    def loaded(self) -> Ready:
        """Wait until it can decide; raises LoadError."""
        try:
            if self.channel.poll(LOAD_S):
                said = self.channel.recv()
                if isinstance(said, Ready):
                    return said
                if isinstance(said, Unable):
                    raise LoadError(said.text)
        except (EOFError, OSError) as error:
            raise LoadError(f"the process that decides has ended: {error}") from None
        raise LoadError(f"the process that decides was not ready within {LOAD_S:g} s")

    def tell(self, pieces: tuple[bytes, ...]) -> None:
        """Pass on the pieces of a view, in place of one that still waits."""
        with contextlib.suppress(Empty):
            self._waiting.get_nowait()
        self._waiting.put(pieces)

    def close(self) -> None:
        """End it."""
        self._closed.set()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self._sender.join(2.0)
        self.channel.close()
        self._views.close()

    def _send_views(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._closed.is_set():
                try:
                    pieces = self._waiting.get(timeout=0.5)
                except Empty:
                    continue
                for piece in pieces:
                    self._views.send_bytes(piece)


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
        self._closed = False
        self._use(child)

    @property
    def free(self) -> bool:
        """True where it can be asked."""
        return self._asked is None and self._child is not None

    @property
    def stuck_s(self) -> float:
        """For how long the decision in the making has been, in seconds."""
        return 0.0 if self._asked is None else time.perf_counter() - self._asked_s

    def ask(self, line: bytes, name: str) -> None:
        """Ask; only where it is free."""
        assert self._child is not None
        made = tuple(self._made)
        self._made.clear()
        self._asked, self._asked_s = Asked(line, name, made), time.perf_counter()
        try:
            self._child.channel.send(self._asked)
        except OSError:
            self._loop.call_soon(self._lost)

    def know(self, made: Sequence[Made]) -> None:
        """Tell it of predictions with the next question."""
        self._made.extend(made)

    def tell(self, pieces: tuple[bytes, ...]) -> None:
        """Pass on the pieces of a view; from any thread."""
        child = self._child
        if child is not None:
            child.tell(pieces)

    def replace(self, child: DeciderProcess) -> None:
        """Ask another child from now on; what the old one was asked counts as failed."""
        self._drop()
        self._use(child)
        self._fail()

    def end_if_stuck(self) -> None:
        """End a child that decides nothing any more."""
        if self.stuck_s > STUCK_S and self._child is not None:
            _log.error("a decision did not end within %g s: its process is ended", STUCK_S)
            self._lost()

    def close(self) -> None:
        """End the child."""
        self._closed = True
        self._drop()

    def _use(self, child: DeciderProcess) -> None:
        self._child: DeciderProcess | None = child
        self._loop.add_reader(child.channel.fileno(), self._read)

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
            try:
                child = await asyncio.to_thread(self._started, aside)
            except (LoadError, OSError) as error:
                _log.warning("no process to decide: %s", error)
                pause_s = min(2 * pause_s, 30.0)
                continue
            self._use(child)
            self._answered(Asked(b"", ""), FAILED)
            return

    def _started(self, aside: bool) -> DeciderProcess:
        child = self._renew(aside)
        try:
            child.loaded()
        except LoadError:
            child.close()
            raise
        return child

    def _fail(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            self._answered(asked, FAILED)


FAILED = ChildAnswer(ending=Ending.FAILED, answer=HookAnswer(log="outcome=failed", ttl_s=0))
