"""Networks over images; each returns its loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from .sequence import Mean, Trained, TransformerLayer, regressor


class Residual(nn.Module):
    """A block of ResNet: two 3x3 convolutions, or as a bottleneck 1x1, 3x3 and 1x1."""

    def __init__(self, cin: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        cout = 4 * width if bottleneck else width
        if bottleneck:
            body = [conv_bn(cin, width, 1), conv_bn(width, width, 3, stride)]
        else:
            body = [conv_bn(cin, width, 3, stride)]
        self.body = nn.Sequential(*body, *_normed(width, cout, 1 if bottleneck else 3))
        self.skip: nn.Module = nn.Identity()
        if cin != cout or stride != 1:
            self.skip = nn.Sequential(*_normed(cin, cout, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        return functional.relu(self.body(x) + self.skip(x))


def _normed(cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(cout)]


def conv_bn(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(*_normed(cin, cout, kernel, stride, groups), nn.ReLU(inplace=True))


def _pooled(channels: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)


def resnet50() -> nn.Module:
    """ResNet-50 of torchvision."""
    blocks: list[nn.Module] = [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    cin = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(depth):
            blocks.append(Residual(cin, width, 1 if number else stride, bottleneck=True))
            cin = 4 * width
    return Trained(*blocks, *_pooled(cin, 1000))


def small_resnet() -> nn.Module:
    """Three stages of two basic blocks."""
    blocks: list[nn.Module] = [conv_bn(3, 16)]
    for cin, cout, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        blocks += [
            Residual(cin, cout, stride, bottleneck=False),
            Residual(cout, cout, 1, bottleneck=False),
        ]
    return Trained(*blocks, *_pooled(64, 10))


def mobilenet() -> nn.Module:
    """Depthwise convolutions and 1x1 convolutions in turn."""
    blocks: list[nn.Module] = [conv_bn(3, 24, 3, 2)]
    for cin, cout, stride in ((24, 48, 1), (48, 96, 2), (96, 96, 1), (96, 192, 2)):
        blocks += [conv_bn(cin, cin, 3, stride, groups=cin), conv_bn(cin, cout, 1)]
    return Trained(*blocks, *_pooled(192, 100))


def mlp() -> nn.Module:
    """Three wide linear layers."""
    sizes = (784, 1024, 1024, 512)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return Trained(*layers, nn.Linear(512, 10))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of a feature map."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7, then an MLP over the channels of each pixel, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        out: Tensor = self.mlp(self.spread(x).permute(0, 2, 3, 1)) * self.scale
        return x + out.permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width > 96:
            blocks += [ChannelNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        blocks += [ConvNextBlock(width) for _ in range(depth)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))
    return Trained(*blocks, *head)


class Patches(nn.Module):
    """Cuts an image into patches and projects them."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, positions, width)."""
        cut: Tensor = self.project(x)
        return cut.flatten(2).transpose(1, 2)


def vit(*, layers: int, width: int, heads: int, patch: int, classes: int) -> nn.Module:
    """Encoder layers over the patches of an image, and the mean of what they make of them."""
    parts = (TransformerLayer(width, heads) for _ in range(layers))
    head = (nn.LayerNorm(width), Mean(), nn.Linear(width, classes))
    return Trained(Patches(width, patch), *parts, *head)


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


def mixer() -> nn.Module:
    """MLP-Mixer of four layers over 64 patches."""
    layers = (Mixing(64, 128) for _ in range(4))
    return Trained(Patches(128, 4), *layers, nn.LayerNorm(128), Mean(), nn.Linear(128, 10))


class UNet(nn.Module):
    """Two levels down and up again, joined by concatenation."""

    def __init__(self, *, width: int, classes: int = 4) -> None:
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


class DiffusionBlock(nn.Module):
    """A level of a diffusion U-Net: two group-normed convolutions, attention over all pixels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(2)
        )
        self.attend = TransformerLayer(width, heads)

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        out = x
        for layer in self.convolutions:
            out = layer(out)
        attended: Tensor = self.attend((x + out).flatten(2).transpose(1, 2))
        return attended.transpose(1, 2).reshape(x.shape)


def diffusion(*, blocks: int, width: int, heads: int) -> nn.Module:
    """Blocks of one level of a diffusion U-Net."""
    return regressor(*(DiffusionBlock(width, heads) for _ in range(blocks)))
