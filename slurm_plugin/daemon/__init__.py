"""The decision daemon: what the hook in slurmctld asks over a Unix socket.

What takes time is done by processes of its own, so that no answer waits: one reads Slurm (views),
one makes predictions and finishes what was late (decider_child).
"""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Sequence
from multiprocessing.connection import Connection

SEND_S = 1  # a child that is stopped reads nothing: sending to it fails after so long
PACKAGES = ("slurm_plugin", "predictor")  # whose words are logged


def started(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], Connection]:
    """A child in a session of its own, and a connection to it: its last word is the other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [*command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
        return child, Connection(ours.detach())
