"""Networks over sequences and tables; each returns its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


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


def regressor(*layers: nn.Module) -> nn.Module:
    """A network whose output is compared with its target by mean squares."""
    return Trained(*layers, loss=functional.mse_loss)


class Mean(nn.Module):
    """Mean over positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, positions, width) to (batch, width)."""
        return x.mean(1)


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


class TransformerLayer(nn.Module):
    """A transformer layer with norms in front, as in GPT-2 and ViT, or behind, as in BERT."""

    def __init__(
        self, width: int, heads: int, *, causal: bool = False, post: bool = False, drop: float = 0.0
    ) -> None:
        super().__init__()
        self.attention, self.post = Attention(width, heads, causal=causal), post
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        for norm, part in zip(self.norms, (self.attention, self.mlp), strict=True):
            inner = self.drop(part(x if self.post else norm(x)))
            x = norm(x + inner) if self.post else x + inner
        return x


class Language(nn.Module):
    """Token and position tables, transformer layers, a score for every token of the vocabulary."""

    def __init__(self, *layers: nn.Module, width: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.positions(places))
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def language(
    *,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    length: int,
    causal: bool = False,
    post: bool = False,
    drop: float = 0.0,
) -> nn.Module:
    """BERT (``post``) or GPT-2 (``causal``) of any size."""
    parts = (
        TransformerLayer(width, heads, causal=causal, post=post, drop=drop) for _ in range(layers)
    )
    return Language(*parts, width=width, vocabulary=vocabulary, length=length)


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
    return regressor(*(LlamaLayer(width, heads, inner) for _ in range(layers)))


class Recurrent(nn.Module):
    """Embedding, recurrent layers (LSTM or GRU), and a class for every token."""

    def __init__(self, *, cell: str, layers: int, width: int, both: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(2000, width)
        self.rnn = getattr(nn, cell)(width, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (1 + both), 50)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        states, _ = self.rnn(self.table(tokens))
        return functional.cross_entropy(self.head(states).flatten(0, 1), labels.flatten())


class Recommender(nn.Module):
    """Sparse features looked up in tables, joined with dense ones in an MLP."""

    def __init__(self, *, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))
        self.mlp = nn.Sequential(
            nn.Linear(fields * width + 16, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, dense: Tensor, ids: Tensor, clicks: Tensor) -> Tensor:
        """The loss of one batch."""
        looked_up = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        score = self.mlp(torch.cat((*looked_up, dense), 1))
        return functional.binary_cross_entropy_with_logits(score, clicks)
