"""Who may ask: root, the user the daemon runs as, SlurmUser, and those the policy names."""

from __future__ import annotations

import os
import pwd
import re
import socket
import struct
from collections.abc import Iterable

_UCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NAME_AND_UID = re.compile(r"[^()]*\((\d+)\)")  # as scontrol show config prints SlurmUser


class Peers:
    """The user ids that are answered."""

    def __init__(self, users: Iterable[str] = ()) -> None:
        self.named: frozenset[int] = frozenset()
        self.slurm_user: int | None = None
        self.unknown: tuple[str, ...] = ()
        self.name(users)

    def name(self, users: Iterable[str]) -> None:
        """Take the users of the policy, names or numbers; ``unknown`` are those that are not."""
        found = {user: uid_of(user) for user in users}
        self.named = frozenset(uid for uid in found.values() if uid is not None)
        self.unknown = tuple(user for user, uid in found.items() if uid is None)

    def accept(self, uid: int) -> bool:
        """True where this user is answered."""
        return uid in (0, os.geteuid(), self.slurm_user) or uid in self.named

    @property
    def shared(self) -> bool:
        """True where users other than root and the daemon's own were named."""
        return bool(self.named - {0, os.geteuid()})


def uid_of(user: str) -> int | None:
    """The id of ``slurm``, ``64030`` or ``slurm(64030)``; None for an unknown name."""
    if both := _NAME_AND_UID.fullmatch(user):
        return int(both[1])
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def peer_uid(connected: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows them."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])
