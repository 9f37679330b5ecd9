"""The jobs that are submitted: all alike but for their names and what their comments state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.live.slurm.cluster import SlurmCluster

SCRIPT = Path(__file__).with_name("train.sh")
TRES = "gpu:2"
COLON_BEFORE = (23, 2)  # Slurm older than this writes gres:gpu, the others gres/gpu
LENGTH = "precision=amp steps=100000"
KNOWN = tuple(
    f"model={model} batch={batch} {LENGTH}"
    for model in ("resnet50", "bert-base", "vit-b16")
    for batch in (16, 32)
)
MODELS = ("resnet50", "bert-base", "resnet18", "distilbert-base")


@dataclass(frozen=True, slots=True)
class Job:
    """The name says which hook takes it: see hooks.lua."""

    name: str
    comment: str


class Jobs:
    """Makes jobs for a kind of hook, each different from all before, but ``repeated`` ones."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._new: Iterator[str] = (
            f"model={model} batch={batch} {LENGTH}"
            for batch in itertools.count(33)
            for model in MODELS
        )

    def of(self, kind: str, count: int) -> Sequence[Job]:
        """So many jobs of a kind; those of ``new`` have a shape that nothing was asked about."""
        return [self._one(kind) for _ in range(count)]

    def _one(self, kind: str) -> Job:
        if kind == "repeated":
            return Job("repeated", KNOWN[0])
        number = next(self._numbers)
        if kind == "renamed":
            return Job(f"{kind}-{number}", KNOWN[0])
        comment = next(self._new) if kind == "new" else KNOWN[number % len(KNOWN)]
        return Job(f"{kind}-{number}", f"{comment} run {number}")


def gpus(cluster: SlurmCluster) -> str:
    """The GPUs of each job as the API of this Slurm takes them."""
    return f"gres:{TRES}" if cluster.installation.version < COLON_BEFORE else f"gres/{TRES}"
