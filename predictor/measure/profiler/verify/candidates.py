"""The networks whose steps are measured, with their data and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from . import sequence, vision


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """One argument of ``forward``: sizes of one sample; whole numbers below ``below``, if given."""

    sizes: tuple[int, ...]
    below: int = 0

    def batch(self, size: int, device: torch.device) -> Tensor:
        """Random values for ``size`` samples."""
        if self.below:
            return torch.randint(self.below, (size, *self.sizes), device=device)
        return torch.rand((size, *self.sizes), device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A network that returns its loss, the batch it is trained on, and its optimizer.

    ``aside`` marks networks that were no guide when the predictor of CPUs was built.
    """

    name: str
    build: Callable[[], nn.Module]
    data: tuple[Data, ...]
    batch_size: int
    optimizer: str = "adamw"
    aside: bool = False

    def batch(self, device: torch.device) -> tuple[Tensor, ...]:
        """Arguments of ``forward`` for one batch."""
        return tuple(data.batch(self.batch_size, device) for data in self.data)


def image(channels: int, side: int) -> Data:
    """A square image."""
    return Data(sizes=(channels, side, side))


def tokens(length: int, vocabulary: int) -> Data:
    """A sequence of tokens."""
    return Data(sizes=(length,), below=vocabulary)


def labels(classes: int, *sizes: int) -> Data:
    """A class for every sample, or for each of its positions."""
    return Data(sizes=sizes, below=classes)


CANDIDATES = (
    Candidate(name="mlp", build=vision.mlp, data=(Data(sizes=(784,)), labels(10)), batch_size=128),
    Candidate(
        name="lenet",
        build=vision.lenet,
        data=(image(1, 28), labels(10)),
        batch_size=128,
        optimizer="sgd",
    ),
    Candidate(
        name="resnet",
        build=vision.resnet,
        data=(image(3, 32), labels(10)),
        batch_size=32,
        optimizer="sgd",
    ),
    Candidate(
        name="mobilenet",
        build=vision.mobilenet,
        data=(image(3, 64), labels(100)),
        batch_size=16,
        optimizer="sgd",
    ),
    Candidate(
        name="lstm", build=sequence.lstm, data=(tokens(32, 2000), labels(50, 32)), batch_size=32
    ),
    Candidate(
        name="gru", build=sequence.gru, data=(tokens(32, 2000), labels(50, 32)), batch_size=64
    ),
    Candidate(
        name="bert", build=sequence.bert, data=(tokens(64, 1000), labels(1000, 64)), batch_size=16
    ),
    Candidate(
        name="gpt", build=sequence.gpt, data=(tokens(64, 2000), labels(2000, 64)), batch_size=8
    ),
    Candidate(name="vit", build=sequence.vit, data=(image(3, 32), labels(10)), batch_size=16),
    Candidate(
        name="autoencoder",
        build=vision.autoencoder,
        data=(image(3, 64), image(3, 64)),
        batch_size=16,
    ),
    Candidate(
        name="recommender",
        build=sequence.Recommender,
        batch_size=512,
        optimizer="sgd",
        data=(Data(sizes=(16,)), Data(sizes=(8,), below=5000), Data(sizes=(1,))),
    ),
    Candidate(name="unet", build=vision.UNet, data=(image(3, 64), labels(4, 64, 64)), batch_size=8),
    Candidate(
        name="mixer", build=vision.mixer, data=(image(3, 32), labels(10)), batch_size=16, aside=True
    ),
    Candidate(
        name="densenet",
        build=vision.densenet,
        data=(image(3, 32), labels(10)),
        batch_size=16,
        optimizer="sgd",
        aside=True,
    ),
    Candidate(
        name="tagger",
        build=sequence.tagger,
        data=(tokens(48, 2000), labels(50, 48)),
        batch_size=24,
        aside=True,
    ),
    Candidate(
        name="wavenet",
        build=sequence.Convolved,
        data=(tokens(256, 256), labels(256, 256)),
        batch_size=8,
        aside=True,
    ),
)
