"""Networks in the sizes that people train, for the whole-step check of a GPU.

Written with torch alone, since a machine to measure on often holds no other package.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .candidates import Candidate, Data, image, labels, tokens
from .sequence import Language, Recommender, Recurrent, TransformerLayer
from .vision import Classifier, Mean, Patches, Regressor, UNet, conv_bn

VOCABULARY, BERT_VOCABULARY = 50_257, 30_522


class Bottleneck(nn.Module):
    """A block of ResNet-50: 1x1, 3x3 with the stride, 1x1."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = 4 * width
        self.body = nn.Sequential(
            conv_bn(cin, width, 1),
            conv_bn(width, width, 3, stride),
            nn.Conv2d(width, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )
        self.skip: nn.Module = nn.Identity()
        if cin != cout or stride != 1:
            self.skip = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Feature map to feature map."""
        return functional.relu(self.body(x) + self.skip(x))


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


def resnet50() -> nn.Module:
    """ResNet-50 of torchvision."""
    blocks: list[nn.Module] = [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    cin = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(depth):
            blocks.append(Bottleneck(cin, width, 1 if number else stride))
            cin = 4 * width
    return Classifier(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width > 96:
            blocks += [ChannelNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        blocks += [ConvNextBlock(width) for _ in range(depth)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))
    return Classifier(*blocks, *head)


def vit_base() -> nn.Module:
    """ViT-B/16 that takes the mean of its patches."""
    layers = (TransformerLayer(768, 12) for _ in range(12))
    return Classifier(Patches(768, 16), *layers, nn.LayerNorm(768), Mean(), nn.Linear(768, 1000))


def bert(layers: int, width: int, heads: int) -> nn.Module:
    """BERT with a score for every token, as its pre-training has."""
    parts = (TransformerLayer(width, heads, post=True, drop=0.1) for _ in range(layers))
    return Language(*parts, width=width, vocabulary=BERT_VOCABULARY, length=512)


def gpt2(layers: int, width: int, heads: int) -> nn.Module:
    """GPT-2 with a head of its own."""
    parts = (TransformerLayer(width, heads, causal=True, drop=0.1) for _ in range(layers))
    return Language(*parts, width=width, vocabulary=VOCABULARY, length=1024)


def llama_stack() -> nn.Module:
    """Two layers as Llama-2-7B has."""
    return Regressor(*(LlamaLayer(4096, 32, 11_008) for _ in range(2)))


def diffusion() -> nn.Module:
    """Two blocks of the first level of Stable Diffusion's U-Net."""
    return Regressor(*(DiffusionBlock(320, 8) for _ in range(2)))


_LATENT = Data(sizes=(320, 64, 64))
_STATES = Data(sizes=(2048, 4096))
# The first is the one run that teaches a factor (docs/how-to/profiling.md).
NETWORKS = (
    Candidate(
        name="resnet50",
        build=resnet50,
        data=(image(3, 224), labels(1000)),
        batch_size=64,
        optimizer="sgd",
    ),
    Candidate(name="vit_base", build=vit_base, data=(image(3, 224), labels(1000)), batch_size=32),
    Candidate(
        name="convnext_tiny",
        build=convnext_tiny,
        data=(image(3, 224), labels(1000)),
        batch_size=32,
    ),
    Candidate(
        name="bert_base",
        build=lambda: bert(12, 768, 12),
        data=(tokens(128, BERT_VOCABULARY), labels(BERT_VOCABULARY, 128)),
        batch_size=32,
    ),
    Candidate(
        name="bert_large",
        build=lambda: bert(24, 1024, 16),
        data=(tokens(512, BERT_VOCABULARY), labels(BERT_VOCABULARY, 512)),
        batch_size=4,
    ),
    Candidate(
        name="gpt2",
        build=lambda: gpt2(12, 768, 12),
        data=(tokens(1024, VOCABULARY), labels(VOCABULARY, 1024)),
        batch_size=4,
    ),
    Candidate(
        name="gpt2_medium",
        build=lambda: gpt2(24, 1024, 16),
        data=(tokens(1024, VOCABULARY), labels(VOCABULARY, 1024)),
        batch_size=2,
    ),
    Candidate(name="llama_stack", build=llama_stack, data=(_STATES, _STATES), batch_size=2),
    Candidate(
        name="unet",
        build=lambda: UNet(64),
        data=(image(3, 256), labels(4, 256, 256)),
        batch_size=8,
    ),
    Candidate(
        name="lstm",
        build=lambda: Recurrent(nn.LSTM, 2, 1024),
        data=(tokens(128, 2000), labels(50, 128)),
        batch_size=64,
    ),
    Candidate(
        name="recommender",
        build=lambda: Recommender(fields=26, rows=100_000, width=64),
        data=(Data(sizes=(16,)), Data(sizes=(26,), below=100_000), Data(sizes=(1,))),
        batch_size=4096,
        optimizer="sgd",
    ),
    Candidate(name="diffusion", build=diffusion, data=(_LATENT, _LATENT), batch_size=4),
)
