"""A view of Slurm in small pieces: what the child that reads it sends to the daemon, pickled.

Both ends are processes of ours and the pipe is theirs alone. Small pieces, so that unpickling a
long queue never keeps the daemon from an answer.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

from ..cluster import Cluster, SlurmJob, SlurmNode

PIECE = 200


@dataclass(frozen=True, slots=True)
class SomeNodes:
    """Some of the nodes."""

    nodes: tuple[SlurmNode, ...]


@dataclass(frozen=True, slots=True)
class SomeJobs:
    """Some of the queue."""

    jobs: tuple[SlurmJob, ...]


@dataclass(frozen=True, slots=True)
class RestOfView:
    """Everything else, after all nodes and jobs."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class NoView:
    """Why there is no view this time."""

    text: str


Frame = SomeNodes | SomeJobs | RestOfView | NoView


def frames(cluster: Cluster) -> Iterator[Frame]:
    """The pieces of a view."""
    for start in range(0, len(cluster.nodes), PIECE):
        yield SomeNodes(cluster.nodes[start : start + PIECE])
    for start in range(0, len(cluster.queue), PIECE):
        yield SomeJobs(cluster.queue[start : start + PIECE])
    yield RestOfView(replace(cluster, nodes=(), queue=()))


def write(file: IO[bytes], frame: Frame) -> None:
    """Send one piece."""
    pickle.dump(frame, file, protocol=pickle.HIGHEST_PROTOCOL)
    file.flush()


def read(file: IO[bytes]) -> Frame:
    """The next piece; raises EOFError where the sender is gone."""
    try:
        frame: Frame = pickle.load(file)
    except pickle.UnpicklingError as error:
        raise EOFError("the process that reads Slurm has ended") from error
    return frame
