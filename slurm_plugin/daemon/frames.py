"""A view of Slurm in small pieces: what the child that reads it sends to the daemon.

Each piece is a pickle after its length. Both ends are processes of ours and the pipe is theirs
alone. Small pieces, so that unpickling a long queue never keeps the daemon from an answer.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

from ..cluster import Cluster, SlurmJob, SlurmNode

PIECE = 200
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some of the nodes."""

    nodes: tuple[SlurmNode, ...]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Some of the queue."""

    jobs: tuple[SlurmJob, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """Everything else, after all nodes and jobs."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no view this time."""

    text: str


Frame = Nodes | Jobs | Rest | Failure


def frames(cluster: Cluster) -> Iterator[Frame]:
    """The pieces of a view."""
    for start in range(0, len(cluster.nodes), PIECE):
        yield Nodes(cluster.nodes[start : start + PIECE])
    for start in range(0, len(cluster.queue), PIECE):
        yield Jobs(cluster.queue[start : start + PIECE])
    yield Rest(replace(cluster, nodes=(), queue=()))


def write(file: IO[bytes], frame: Frame) -> None:
    """Send one piece."""
    body = pickle.dumps(frame, protocol=pickle.HIGHEST_PROTOCOL)
    file.write(_LENGTH.pack(len(body)) + body)
    file.flush()


def read(file: IO[bytes]) -> Frame:
    """The next piece; raises EOFError where the sender is gone."""
    body = _exactly(file, _LENGTH.unpack(_exactly(file, _LENGTH.size))[0])
    frame: Frame = pickle.loads(body)
    return frame


def _exactly(file: IO[bytes], size: int) -> bytes:
    body = file.read(size)
    if len(body) < size:
        raise EOFError("the process that reads Slurm has ended")
    return body
