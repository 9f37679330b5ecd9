"""The manifest of recorded graphs: which networks of which libraries, with their figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GRAPHS = Path(__file__).parent / "graphs"
MANIFEST = GRAPHS / "manifest.json"
IMAGENET_IMAGES = 1281167
# What the papers of each kind of network train with, where an entry says nothing else.
OPTIMIZERS = {"vision-transformer": "adamw"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One network as a library builds it.

    ``parameters`` and ``forward_gflops`` (2 x multiply-adds, one of two samples of ``image_size``)
    are those of the library's module, counted by torch.
    """

    name: str
    sha256: str
    image_size: int
    parameters: int
    forward_gflops: float
    group: str

    @property
    def model(self) -> str:
        """Its name in the library."""
        return self.name.partition("/")[2]

    def entry(self, library: str) -> Mapping[str, Any]:
        """An entry of the catalog; ``library`` with its version."""
        defaults = {
            "image_size": [self.image_size, self.image_size],
            "optimizer": OPTIMIZERS.get(self.group, "sgd"),
            "dataset_size": IMAGENET_IMAGES,
        }
        return {
            "family": "recorded",
            "group": self.group,
            "architecture": {"graph": self.name},
            "defaults": defaults,
            "parameters": self.parameters,
            "forward_gflops": self.forward_gflops,
            "source": f"{library}, {self.model}",
        }


@cache
def manifest() -> Mapping[str, Any]:
    """The manifest as it was written: library versions, and each graph."""
    found: Mapping[str, Any] = json.loads(MANIFEST.read_text())
    return found


@cache
def recordings() -> Mapping[str, Recording]:
    """Every recorded network, by library and name."""
    return {name: Recording(name=name, **row) for name, row in manifest()["graphs"].items()}


def path_of(name: str) -> Path:
    """The file of a recorded graph."""
    return GRAPHS / f"{name}.json.gz"


def entries_of_recordings(taken: set[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Entries of the networks that no other entry describes; ``taken`` are graphs that one does."""
    versions = manifest()["libraries"]
    for recording in recordings().values():
        if recording.name not in taken:
            library = recording.name.partition("/")[0]
            yield recording.model, recording.entry(f"{library} {versions[library]}")
