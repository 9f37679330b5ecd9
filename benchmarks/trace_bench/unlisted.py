"""Networks that no catalog lists, each of another kind, and what they take and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .reference import BATCH


class Kan(nn.Module):
    """Kolmogorov-Arnold layers: a learned sum of bumps on every edge (arXiv 2404.19756)."""

    def __init__(self, widths: tuple[int, ...] = (28, 64, 10), bumps: int = 8) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.edges = nn.ParameterList(nn.Parameter(torch.empty(a, bumps, c)) for a, c in pairs)
        self.straight = nn.ModuleList(nn.Linear(a, c, bias=False) for a, c in pairs)
        self.centres: Tensor
        self.register_buffer("centres", torch.empty(bumps))

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        for edges, straight in zip(self.edges, self.straight, strict=True):
            bumps = torch.exp(-((x[..., None] - self.centres) ** 2))
            x = straight(F.silu(x)) + torch.einsum("bik,iko->bo", bumps, edges)
        return x


class GraphNet(nn.Module):
    """Messages along edges, gathered and scattered by index, for one graph of a batch each."""

    def __init__(self, width: int = 64, steps: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(steps))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(steps))
        self.out = nn.Linear(width, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Any:
        """One number a graph."""
        h = self.embed(nodes)
        width, (source, target) = h.shape[-1], edges.unbind(1)
        for message, update in zip(self.message, self.update, strict=True):
            ends = (h.gather(1, e[..., None].expand(-1, -1, width)) for e in (source, target))
            sent = F.relu(message(torch.cat(list(ends), -1)))
            into = target[..., None].expand(-1, -1, width)
            got = torch.zeros_like(h).scatter_add(1, into, sent)
            h = update(got.reshape(-1, width), h.reshape(-1, width)).view(h.shape)
        return self.out(h.mean(1))


class Scan(nn.Module):
    """A selective state space layer (arXiv 2312.00752), its scan as a cumulative sum of logs."""

    def __init__(self, width: int = 64, states: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(500, width)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.step = nn.Linear(width, width)
        self.into, self.outof = nn.Linear(width, states), nn.Linear(width, states)
        self.decay = nn.Parameter(torch.empty(width, states))
        self.head = nn.Linear(width, 500)

    def forward(self, ids: Tensor) -> Any:
        """Logits of each next word."""
        x = self.table(ids)
        x = F.silu(self.mix(x.transpose(1, 2))[..., : ids.shape[1]].transpose(1, 2))
        step = F.softplus(self.step(x))
        log = torch.cumsum(step[..., None] * -torch.exp(self.decay), 1)
        driven = (step * x)[..., None] * self.into(x)[:, :, None]
        state = torch.cumsum(driven * torch.exp(-log), 1) * torch.exp(log)
        return self.head((state * self.outof(x)[:, :, None]).sum(-1))


def double(a: int, c: int) -> nn.Sequential:
    """Two convolutions with their norms."""
    layers: list[nn.Module] = []
    for width in (a, c):
        layers += [nn.Conv3d(width, c, 3, padding=1), nn.GroupNorm(4, c), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class Unet3d(nn.Module):
    """Volumes, pooled and enlarged again."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.down = nn.ModuleList(double(a, c) for a, c in pairwise((1, *widths)))
        back = list(pairwise(reversed(widths)))
        self.enlarge = nn.ModuleList(nn.ConvTranspose3d(a, c, 2, 2) for a, c in back)
        self.up = nn.ModuleList(double(2 * c, c) for _, c in back)
        self.out = nn.Conv3d(widths[0], 3, 1)

    def forward(self, x: Tensor) -> Any:
        """Logits of each voxel."""
        skips: list[Tensor] = []
        for block in self.down:
            x = block(F.max_pool3d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=True):
            x = block(torch.cat([enlarge(x), skips.pop()], 1))
        return self.out(x)


class Nerf(nn.Module):
    """Radiance along rays: encoded positions through an MLP, then composited (arXiv 2003.08934)."""

    def __init__(self, width: int = 64, octaves: int = 6, samples: int = 32) -> None:
        super().__init__()
        self.octaves, self.samples = octaves, samples
        layers: list[nn.Module] = []
        for a in (6 * octaves, width, width):
            layers += [nn.Linear(a, width), nn.ReLU()]
        self.trunk, self.out = nn.Sequential(*layers), nn.Linear(width, 4)

    def forward(self, origin: Tensor, direction: Tensor) -> Any:
        """Colours of the rays."""
        depth = torch.linspace(2, 6, self.samples)
        points = origin[:, None] + direction[:, None] * depth[:, None]
        waves = points[..., None] * 2.0 ** torch.arange(self.octaves)
        encoded = torch.cat([waves.sin(), waves.cos()], -1).flatten(-2)
        found = self.out(self.trunk(encoded))
        alpha = 1 - torch.exp(-F.relu(found[..., 3]))
        left = torch.cumprod(1 - alpha + 1e-10, 1)
        return ((alpha * left)[..., None] * torch.sigmoid(found[..., :3])).sum(1)


class Routed(nn.Module):
    """A mixture of experts with places for as many tokens as a capacity, as GShard routes."""

    def __init__(self, width: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(500, width)
        self.router = nn.Linear(width, experts)
        self.wide = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.narrow = nn.Parameter(torch.empty(experts, 4 * width, width))
        self.head = nn.Linear(width, 500)

    def forward(self, ids: Tensor) -> Any:
        """Logits of each next word."""
        x = self.table(ids)
        weight, chosen = self.router(x).softmax(-1).topk(2)
        places = F.one_hot(chosen, self.wide.shape[0]).to(x.dtype)
        gate = (places * weight[..., None]).sum(2)
        sent = torch.einsum("bse,bsd->ebsd", gate, x).flatten(1, 2)
        made = torch.bmm(F.gelu(torch.bmm(sent, self.wide)), self.narrow)
        made = made.view(-1, *x.shape)
        return self.head(x + torch.einsum("ebsd,bse->bsd", made, gate))


class Flow(nn.Module):
    """Affine couplings and invertible mixing with their log-determinants; returns its loss."""

    def __init__(self, width: int = 32, steps: int = 4) -> None:
        super().__init__()
        self.mix = nn.ParameterList(nn.Parameter(torch.empty(width, width)) for _ in range(steps))
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(width // 2, 128), nn.Tanh(), nn.Linear(128, width))
            for _ in range(steps)
        )

    def forward(self, x: Tensor) -> Any:
        """The negative log-likelihood."""
        total = x.new_zeros(x.shape[0])
        for mix, net in zip(self.mix, self.nets, strict=True):
            x = x @ mix
            total = total + torch.linalg.slogdet(mix)[1]
            kept, changed = x.chunk(2, -1)
            scale, shift = net(kept).chunk(2, -1)
            x = torch.cat([kept, changed * torch.exp(scale) + shift], -1)
            total = total + scale.sum(-1)
        return ((x**2).sum(-1) / 2 - total).mean()


class Attending(nn.Module):
    """An LSTM, and attention over its own steps."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(500, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1, bidirectional=True)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.out = nn.Linear(2 * width, 500)

    def forward(self, ids: Tensor) -> Any:
        """Logits of each next word."""
        x, _ = self.lstm(self.table(ids))
        x, _ = self.attention(x, x, x, need_weights=False)
        return self.out(x)


Sizes = tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlisted:
    """A network, its inputs in order (sizes of one sample, ``S`` for the sequence), what it runs.

    Inputs in ``whole`` hold integers. ``runs`` are kinds that its operators must have, ``unknown``
    the operators that are priced by bytes alone.
    """

    build: Callable[[], nn.Module]
    inputs: Mapping[str, Sizes]
    runs: tuple[str, ...]
    whole: tuple[str, ...] = ("ids", "edges")
    seq_len: int | None = None
    loss: str = "auto"
    unknown: tuple[str, ...] = ()

    def examples(self, batch: int = BATCH, seq_len: int | None = None) -> dict[str, Tensor]:
        """Inputs without data."""
        length = seq_len or self.seq_len or 0
        return {
            name: torch.empty(
                (batch, *(length if s == "S" else int(s) for s in sizes)),
                device="meta",
                dtype=torch.long if name in self.whole else torch.float32,
            )
            for name, sizes in self.inputs.items()
        }


def _text(build: Callable[[], nn.Module], *runs: str) -> Unlisted:
    return Unlisted(build=build, inputs={"ids": ("S",)}, runs=runs, seq_len=48)


UNLISTED: Mapping[str, Unlisted] = {
    "kan": Unlisted(build=Kan, inputs={"x": (28,)}, runs=("gemm",)),
    "graph-net": Unlisted(
        build=GraphNet, inputs={"nodes": (20, 16), "edges": (2, 50)}, runs=("gemm", "elementwise")
    ),
    "scan": _text(Scan, "conv", "gemm", "embedding"),
    "unet-3d": Unlisted(build=Unet3d, inputs={"x": (1, 16, 16, 16)}, runs=("conv", "group_norm")),
    "nerf": Unlisted(
        build=Nerf, inputs={"origin": (3,), "direction": (3,)}, runs=("gemm",), loss="mse"
    ),
    "routed": _text(Routed, "gemm", "batched_gemm", "softmax"),
    "flow": Unlisted(
        build=Flow, inputs={"x": (32,)}, runs=("gemm",), unknown=("_linalg_slogdet x4",)
    ),
    "attending": _text(Attending, "rnn", "attention", "embedding"),
}
