"""Small networks over images; each returns its loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """A network that gives logits, and cross entropy behind it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        return functional.cross_entropy(self.layers(x), labels)


class Regressor(nn.Module):
    """A network whose output is compared with its target by mean squares."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of one batch."""
        return functional.mse_loss(self.layers(x), target)


def conv_bn(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


def mlp() -> nn.Module:
    """Three wide linear layers."""
    sizes = (784, 1024, 1024, 512)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return Classifier(*layers, nn.Linear(512, 10))


def lenet() -> nn.Module:
    """LeNet-5 with ReLU and max pooling."""
    return Classifier(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


class ResidualBlock(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(cin, cout, 3, stride)
        self.second = nn.Sequential(
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout)
        )
        plain = cin == cout and stride == 1
        self.skip: nn.Module = nn.Identity()
        if not plain:
            self.skip = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        return functional.relu(self.second(self.first(x)) + self.skip(x))


def resnet() -> nn.Module:
    """Three stages of two basic blocks, as on CIFAR."""
    blocks: list[nn.Module] = [conv_bn(3, 16)]
    for cin, cout, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        blocks += [ResidualBlock(cin, cout, stride), ResidualBlock(cout, cout, 1)]
    return Classifier(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mobilenet() -> nn.Module:
    """Depthwise convolutions and 1x1 convolutions in turn."""
    blocks: list[nn.Module] = [conv_bn(3, 24, 3, 2)]
    for cin, cout, stride in ((24, 48, 1), (48, 96, 2), (96, 96, 1), (96, 192, 2)):
        blocks += [conv_bn(cin, cin, 3, stride, groups=cin), conv_bn(cin, cout, 1)]
    return Classifier(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 100))


def autoencoder() -> nn.Module:
    """A convolutional autoencoder with transposed convolutions."""
    return Regressor(
        nn.Conv2d(3, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 3, 4, 2, 1),
        nn.Sigmoid(),
    )


class UNet(nn.Module):
    """Two levels down and up again, joined by concatenation."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(conv_bn(a, b), conv_bn(b, b))
            for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.up = nn.ModuleList(
            nn.Sequential(conv_bn(a + b, b), conv_bn(b, b))
            for a, b in ((4 * width, 2 * width), (2 * width, width))
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        kept: list[Tensor] = []
        for i, stage in enumerate(self.down):
            x = stage(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for stage, side in zip(self.up, reversed(kept[:-1]), strict=True):
            x = stage(torch.cat((functional.interpolate(x, scale_factor=2.0), side), 1))
        return functional.cross_entropy(self.head(x), labels)


class Dense(nn.Module):
    """A dense block: each layer sees all outputs before it."""

    def __init__(self, cin: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(cin + i * growth),
                nn.ReLU(),
                nn.Conv2d(cin + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return x


def densenet() -> nn.Module:
    """Two dense blocks with a transition between them."""
    return Classifier(
        nn.Conv2d(3, 24, 3, padding=1),
        Dense(24, 12, 4),
        nn.Conv2d(72, 36, 1),
        nn.AvgPool2d(2),
        Dense(36, 12, 4),
        nn.BatchNorm2d(84),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(84, 10),
    )


class Mixing(nn.Module):
    """A layer of MLP-Mixer: one MLP over positions, one over channels."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.tokens = _feed_forward((positions, 2 * positions, positions))
        self.channels = _feed_forward((width, 4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, positions, width) to the same."""
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.channels(self.norms[1](x))
        return mixed


def _feed_forward(sizes: Sequence[int]) -> nn.Module:
    a, b, c = sizes
    return nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, c))


class Patches(nn.Module):
    """Cuts an image into patches and projects them."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, positions, width)."""
        cut: Tensor = self.project(x)
        return cut.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    """Mean over positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, positions, width) to (batch, width)."""
        return x.mean(1)


def mixer() -> nn.Module:
    """MLP-Mixer of four layers over 64 patches."""
    layers = (Mixing(64, 128) for _ in range(4))
    return Classifier(Patches(128, 4), *layers, nn.LayerNorm(128), Mean(), nn.Linear(128, 10))
