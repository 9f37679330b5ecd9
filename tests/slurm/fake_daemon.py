"""Daemons that answer well, badly, late or never, on real Unix sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.protocol import HookAnswer

Talk = Callable[[socket.socket, bytes], None]


class FakeDaemon:
    """Answers connections one after the other; keeps the lines it was sent."""

    def __init__(self, path: Path, talk: Talk) -> None:
        self.lines: list[bytes] = []
        self.talk = talk
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many connections were made so far."""
        return len(self.lines)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.lines.append(_line(connection))
                with contextlib.suppress(OSError):
                    self.talk(connection, self.lines[-1])

    def stop(self) -> None:
        """Ends the thread and the socket."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=20)


def _line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return bytes(received)


@contextmanager
def daemon(path: Path, talk: Talk | HookAnswer | bytes) -> Iterator[FakeDaemon]:
    """A daemon at ``path`` for the time of the block; bytes or an Answer is what it says."""
    if isinstance(talk, HookAnswer):
        talk = talk.encode()
    running = FakeDaemon(path, says(talk) if isinstance(talk, bytes) else talk)
    try:
        yield running
    finally:
        running.stop()
        path.unlink(missing_ok=True)


def says(answer: bytes) -> Talk:
    """Sends an answer and closes."""
    return lambda connection, _line: connection.sendall(answer)


def trickles(answer: bytes, pause_s: float = 0.01) -> Talk:
    """Sends one byte at a time."""

    def talk(connection: socket.socket, _line: bytes) -> None:
        for byte in answer:
            connection.sendall(bytes([byte]))
            time.sleep(pause_s)

    return talk


def waits(until: threading.Event) -> Talk:
    """Reads the request and never answers."""

    def talk(_connection: socket.socket, _line: bytes) -> None:
        until.wait(20)

    return talk


@contextmanager
def stopped(path: Path) -> Iterator[None]:
    """A daemon that accepts nothing, with connections waiting until the kernel takes no more."""
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(0)
        try:
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(path))
        except BlockingIOError:
            yield
        finally:
            for connection in waiting:
                connection.close()
            path.unlink()
