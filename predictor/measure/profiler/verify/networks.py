"""The networks of the whole-step check, each returning its loss: ``networks.yaml`` has their sizes.

They are of torch alone, since a machine to measure on often holds no other package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from profiles.storage import shipped_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """One argument of ``forward``: sizes of one sample; whole numbers below ``below``, if given."""

    sizes: tuple[int, ...] = ()
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


class Trained(nn.Module):
    """Layers, and the loss of what they give: cross entropy unless told."""

    def __init__(
        self,
        *layers: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    ) -> None:
        super().__init__()
        self.layers, self.loss = nn.Sequential(*layers), loss

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of one batch."""
        return self.loss(self.layers(x), target)


class Applied(nn.Module):
    """A function as a layer."""

    def __init__(self, call: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Any) -> Tensor:
        """What the function gives."""
        return self.call(x)


class Added(nn.Sequential):
    """Layers whose result is added to what they are given."""

    def forward(self, x: Tensor) -> Tensor:
        """A tensor to one of the same shape."""
        added: Tensor = x + super().forward(x)  # type: ignore[no-untyped-call]
        return added


def _by_token(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def _mean() -> nn.Module:
    return Applied(lambda x: x.mean(1))


def _swapped() -> nn.Module:
    return Applied(lambda x: x.transpose(1, 2))


def _feed_forward(width: int, inner: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)


def _linear_relu(*sizes: int) -> list[nn.Module]:
    return [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]


class Attention(nn.Module):
    """Self-attention of several heads, fused."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, width = x.shape
        split = self.inside(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.outside(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


def transformer_layer(
    width: int, heads: int, *, causal: bool = False, post: bool = False, drop: float = 0.0
) -> nn.Module:
    """A transformer layer with norms in front, as in GPT-2 and ViT, or behind, as in BERT."""
    layers: list[nn.Module] = []
    for part in ((Attention(width, heads, causal=causal),), _feed_forward(width, 4 * width)):
        norm, inner = nn.LayerNorm(width), (*part, nn.Dropout(drop))
        layers += [Added(*inner), norm] if post else [Added(norm, *inner)]
    return nn.Sequential(*layers)


class Tokens(nn.Module):
    """Token and position tables."""

    def __init__(self, width: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to (batch, length, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        table: Tensor = self.tokens(tokens) + self.positions(places)
        return table


def language(
    *, layers: int, width: int, heads: int, vocabulary: int, length: int, **how: Any
) -> nn.Module:
    """BERT (``post``) or GPT-2 (``causal``) of any size: a score for every token."""
    return Trained(
        Tokens(width, vocabulary, length),
        *(transformer_layer(width, heads, **how) for _ in range(layers)),
        nn.LayerNorm(width),
        nn.Linear(width, vocabulary, bias=False),
        loss=_by_token,
    )


class LlamaLayer(nn.Module):
    """A layer of Llama: RMS norms in front, rotary positions, a gated MLP."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList((nn.RMSNorm(width), nn.RMSNorm(width)))
        self.query, self.key, self.value, self.outside = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        normal = self.norms[0](x)
        query, key, value = (
            part(normal).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            _rotated(query), _rotated(key), value, is_causal=True
        )
        x = x + self.outside(mixed.transpose(1, 2).flatten(2))
        normal = self.norms[1](x)
        out: Tensor = x + self.down(functional.silu(self.gate(normal)) * self.up(normal))
        return out


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions: (batch, heads, length, size) to the same."""
    length, size = x.shape[-2:]
    steps = torch.arange(size // 2, device=x.device, dtype=torch.float32)
    places = torch.arange(length, device=x.device, dtype=torch.float32)
    angles = places[:, None] * 10_000.0 ** (-2 * steps / size)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


def llama_stack(*, layers: int, width: int, heads: int, inner: int) -> nn.Module:
    """Layers of Llama without tables."""
    stack = (LlamaLayer(width, heads, inner) for _ in range(layers))
    return Trained(*stack, loss=functional.mse_loss)


def recurrent(*, cell: str, layers: int, width: int, both: bool = False) -> nn.Module:
    """Embedding, recurrent layers (LSTM or GRU), and a class for every token."""
    rnn = getattr(nn, cell)(width, width, layers, batch_first=True, bidirectional=both)
    head = nn.Linear(width * (1 + both), 50)
    return Trained(nn.Embedding(2000, width), rnn, Applied(itemgetter(0)), head, loss=_by_token)


class Recommender(nn.Module):
    """Sparse features looked up in tables, joined with dense ones in an MLP."""

    def __init__(self, *, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))
        self.mlp = nn.Sequential(*_linear_relu(fields * width + 16, 256, 128), nn.Linear(128, 1))

    def forward(self, dense: Tensor, ids: Tensor, clicks: Tensor) -> Tensor:
        """The loss of one batch."""
        looked_up = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        score = self.mlp(torch.cat((*looked_up, dense), 1))
        return functional.binary_cross_entropy_with_logits(score, clicks)


def _normed(cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(cout)]


def conv_bn(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(*_normed(cin, cout, kernel, stride, groups), nn.ReLU(inplace=True))


def _pooled(channels: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)


class ResidualBlock(nn.Module):
    """A block of ResNet: two 3x3 convolutions, or as a bottleneck 1x1, 3x3 and 1x1."""

    def __init__(self, cin: int, width: int, stride: int = 1, *, bottleneck: bool = False) -> None:
        super().__init__()
        if bottleneck:
            cout, kernel, body = 4 * width, 1, [conv_bn(cin, width, 1)]
            body.append(conv_bn(width, width, 3, stride))
        else:
            cout, kernel, body = width, 3, [conv_bn(cin, width, 3, stride)]
        self.body = nn.Sequential(*body, *_normed(width, cout, kernel))
        same = cin == cout and stride == 1
        self.skip = nn.Sequential(*([] if same else _normed(cin, cout, 1, stride)))

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        return functional.relu(self.body(x) + self.skip(x))


def resnet(*, stages: list[list[int]], classes: int, bottleneck: bool = False) -> nn.Module:
    """ResNet of torchvision, or without bottlenecks as on CIFAR; stages of width, depth, stride."""
    cin = stages[0][0]
    blocks: list[nn.Module] = [conv_bn(3, cin)]
    if bottleneck:
        blocks = [conv_bn(3, cin, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for width, depth, stride in stages:
        for number in range(depth):
            blocks.append(ResidualBlock(cin, width, 1 if number else stride, bottleneck=bottleneck))
            cin = 4 * width if bottleneck else width
    return Trained(*blocks, *_pooled(cin, classes))


def mobilenet() -> nn.Module:
    """Depthwise convolutions and 1x1 convolutions in turn."""
    blocks: list[nn.Module] = [conv_bn(3, 24, 3, 2)]
    for cin, cout, stride in ((24, 48, 1), (48, 96, 2), (96, 96, 1), (96, 192, 2)):
        blocks += [conv_bn(cin, cin, 3, stride, groups=cin), conv_bn(cin, cout, 1)]
    return Trained(*blocks, *_pooled(192, 100))


def mlp() -> nn.Module:
    """Three wide linear layers."""
    return Trained(*_linear_relu(784, 1024, 1024, 512), nn.Linear(512, 10))


class Scaled(nn.Module):
    """A factor for each channel, the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """A tensor to one of the same shape."""
        return x * self.scale


def _over_channels(*layers: nn.Module) -> tuple[nn.Module, ...]:
    """Layers over the channels of each pixel of a feature map."""
    last, second = (0, 2, 3, 1), (0, 3, 1, 2)
    return Applied(lambda x: x.permute(last)), *layers, Applied(lambda x: x.permute(second))


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T: depthwise 7x7, then an MLP over the channels of each pixel, scaled."""
    blocks = [nn.Conv2d(3, 96, 4, 4), *_over_channels(nn.LayerNorm(96))]
    for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width > 96:
            blocks += _over_channels(nn.LayerNorm(width // 2))
            blocks.append(nn.Conv2d(width // 2, width, 2, 2))
        for _ in range(depth):
            inner = (nn.LayerNorm(width), *_feed_forward(width, 4 * width), Scaled(width))
            spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
            blocks.append(Added(spread, *_over_channels(*inner)))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))
    return Trained(*blocks, *head)


def _patches(width: int, patch: int) -> tuple[nn.Module, ...]:
    """Cuts an image into patches and projects them: (batch, positions, width)."""
    return nn.Conv2d(3, width, patch, patch), nn.Flatten(2), _swapped()


def vit(*, layers: int, width: int, heads: int, patch: int, classes: int) -> nn.Module:
    """Encoder layers over the patches of an image, and the mean of what they make of them."""
    parts = (transformer_layer(width, heads) for _ in range(layers))
    head = (nn.LayerNorm(width), _mean(), nn.Linear(width, classes))
    return Trained(*_patches(width, patch), *parts, *head)


def mixer() -> nn.Module:
    """MLP-Mixer of four layers over 64 patches: one MLP over positions, one over channels."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers.append(Added(nn.LayerNorm(128), _swapped(), *_feed_forward(64, 128), _swapped()))
        layers.append(Added(nn.LayerNorm(128), *_feed_forward(128, 512)))
    return Trained(*_patches(128, 4), *layers, nn.LayerNorm(128), _mean(), nn.Linear(128, 10))


class UNet(nn.Module):
    """Two levels down and up again, joined by concatenation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(conv_bn(a, b), conv_bn(b, b))
            for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.up = nn.ModuleList(
            nn.Sequential(conv_bn(a + b, b), conv_bn(b, b))
            for a, b in ((4 * width, 2 * width), (2 * width, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Image to feature map."""
        kept: list[Tensor] = []
        for i, stage in enumerate(self.down):
            x = stage(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for stage, side in zip(self.up, reversed(kept[:-1]), strict=True):
            x = stage(torch.cat((functional.interpolate(x, scale_factor=2.0), side), 1))
        return x


def unet(*, width: int) -> nn.Module:
    """A U-Net with four classes for every pixel."""
    return Trained(UNet(width), nn.Conv2d(width, 4, 1))


class DiffusionBlock(nn.Module):
    """A level of a diffusion U-Net: two group-normed convolutions, attention over all pixels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)]
        self.convolutions, self.attend = Added(*layers), transformer_layer(width, heads)

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        attended: Tensor = self.attend(self.convolutions(x).flatten(2).transpose(1, 2))
        return attended.transpose(1, 2).reshape(x.shape)


def diffusion(*, blocks: int, width: int, heads: int) -> nn.Module:
    """Blocks of one level of a diffusion U-Net."""
    return Trained(*(DiffusionBlock(width, heads) for _ in range(blocks)), loss=functional.mse_loss)


def _candidate(name: str, build: str, data: list[dict[str, Any]], **others: Any) -> Candidate:
    """An entry of ``networks.yaml``; ``of`` are the arguments of what ``build`` names."""
    return Candidate(
        name=name,
        build=partial(globals()[build], **others.pop("of", {})),
        data=tuple(Data(sizes=tuple(d.get("sizes", ())), below=d.get("below", 0)) for d in data),
        **others,
    )


_ENTRIES: Mapping[str, Mapping[str, Any]] = shipped_yaml("networks.yaml", __file__)
# Small networks for a CPU, networks in the sizes that people train for a GPU.
CANDIDATES, NETWORKS = (
    tuple(_candidate(name, **entry) for name, entry in _ENTRIES[kind].items())
    for kind in ("cpu", "gpu")
)
