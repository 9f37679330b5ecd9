"""Runs one daemon and leaves nothing of it behind: ``supervisor.py GRACE_S PROGRAM ARGUMENT...``.

It is the reaper of all that descends from it, so a slurmstepd, which leaves its slurmd on purpose,
cannot leave this. It ends everything when the daemon ends, on SIGTERM, and when its standard input
closes, which is how it learns that the tests died.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


class StopRequestError(Exception):
    """Asked to end."""


def main() -> int:
    grace_s, argv = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, _stop)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl PR_SET_CHILD_SUBREAPER")
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    daemon = 0
    try:
        daemon = _start(argv)
        return _wait(daemon)
    except StopRequestError:
        return _ended(daemon, grace_s) if daemon else 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_descendants()


def _stop(*_: object) -> None:
    raise StopRequestError


def _stop_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _start(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setsid()
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _wait(daemon: int) -> int:
    """Reap whatever ends until the daemon does; its exit code."""
    while True:
        pid, status = os.wait()
        if pid == daemon:
            return abs(os.waitstatus_to_exitcode(status))


def _ended(daemon: int, grace_s: float) -> int:
    """The exit code of the daemon, asked to end and killed after ``grace_s``."""
    os.kill(daemon, signal.SIGTERM)
    os.kill(daemon, signal.SIGCONT)
    killed_at = time.monotonic() + grace_s
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == daemon:
            return abs(os.waitstatus_to_exitcode(status))
        if pid == 0:
            time.sleep(0.01)
        if time.monotonic() > killed_at:
            os.kill(daemon, signal.SIGKILL)


def _kill_descendants() -> None:
    while True:
        for pid in _descendants():
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _descendants() -> list[int]:
    parents = dict(_parents())
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family - {os.getpid()})


def _parents() -> list[tuple[int, int]]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    found.append((int(entry), int(stat.read().rpartition(b")")[2].split()[1])))
            except OSError:
                continue
    return found


if __name__ == "__main__":
    sys.exit(main())
