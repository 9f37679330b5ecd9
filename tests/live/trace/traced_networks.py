"""Networks that the tests of the tracer build, and how they trace them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
    """A residual block of ResNet-50."""

    def __init__(self, width: int, planes: int, stride: int) -> None:
        super().__init__()
        out = 4 * planes
        self.path = nn.Sequential(
            nn.Conv2d(width, planes, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        down = (nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Sequential(*down) if width != out else nn.Identity()

    def forward(self, x: Any) -> Any:
        return torch.relu_(self.path(x) + self.shortcut(x))


def resnet50() -> Any:
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(width, 64 * 2**stage, stride))
            width = 256 * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def small() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def images(batch: int = 4, side: int = 32) -> Any:
    return torch.empty(batch, 3, side, side, device="meta")


def tokens(length: int, batch: int = 4) -> Any:
    return torch.empty(batch, length, dtype=torch.long, device="meta")
