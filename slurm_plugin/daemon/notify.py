"""Messages to systemd: the protocol of sd_notify(3), which is one datagram."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

MICROSECONDS = 1_000_000


def notify(*assignments: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send ``KEY=value`` lines; False where nobody asked for them or nobody listens."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    path = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto("\n".join(assignments).encode(), path)
        except OSError:
            return False
    return True


def reloading() -> bool:
    """Tell that a reload begins; ``READY=1`` ends it."""
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    return notify("RELOADING=1", f"MONOTONIC_USEC={now_us}")


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants to hear ``WATCHDOG=1``, in seconds; None for never."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / MICROSECONDS if text.isdecimal() and int(text) else None
