"""Small networks over sequences and tables; each returns its loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .vision import Classifier, Mean, Patches


class Recurrent(nn.Module):
    """Embedding, recurrent layers, and a class for every token."""

    def __init__(
        self, cell: type[nn.LSTM] | type[nn.GRU], layers: int, width: int, *, both: bool = False
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(2000, width)
        self.rnn = cell(width, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (1 + both), 50)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        states, _ = self.rnn(self.table(tokens))
        return functional.cross_entropy(self.head(states).flatten(0, 1), labels.flatten())


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


class Recommender(nn.Module):
    """Sparse features looked up in tables, joined with dense ones in an MLP."""

    def __init__(self, fields: int = 8, rows: int = 5000, width: int = 32) -> None:
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


def lstm() -> nn.Module:
    """Two LSTM layers."""
    return Recurrent(nn.LSTM, 2, 128)


def gru() -> nn.Module:
    """One GRU layer."""
    return Recurrent(nn.GRU, 1, 128)


def tagger() -> nn.Module:
    """A bidirectional LSTM."""
    return Recurrent(nn.LSTM, 1, 96, both=True)


def bert() -> nn.Module:
    """Three encoder layers with dropout."""
    layers = (TransformerLayer(128, 4, post=True, drop=0.1) for _ in range(3))
    return Language(*layers, width=128, vocabulary=1000, length=64)


def gpt() -> nn.Module:
    """Three causal decoder layers."""
    layers = (TransformerLayer(192, 6, causal=True) for _ in range(3))
    return Language(*layers, width=192, vocabulary=2000, length=64)


def vit() -> nn.Module:
    """Four encoder layers over 64 patches of an image."""
    layers = (TransformerLayer(128, 4) for _ in range(4))
    return Classifier(Patches(128, 4), *layers, nn.LayerNorm(128), Mean(), nn.Linear(128, 10))


class Convolved(nn.Module):
    """Causal 1-d convolutions over tokens, with growing dilation and gates, as in WaveNet."""

    def __init__(self, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(256, width)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(layers)
        )
        self.head = nn.Conv1d(width, 256, 1)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        x = self.table(tokens).transpose(1, 2)
        for layer in self.layers:
            x = x + functional.glu(layer(x), 1)
        return functional.cross_entropy(self.head(x), labels)
