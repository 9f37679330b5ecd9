"""Time-series and molecule graphs agree with networks written in torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from references import (
    Compared,
    Reference,
    catalog_of,
    graph_of_entry,
    mlp,
    real,
)

torch = pytest.importorskip("torch")
nn = torch.nn

CATALOG = catalog_of("other")
graph = partial(graph_of_entry, CATALOG)


class Grn(nn.Module):
    def __init__(self, width: int, out: int | None = None, context: bool = False) -> None:
        super().__init__()
        self.a, self.i = nn.Linear(width, 128), nn.Linear(128, 128)
        self.c = nn.Linear(128, 128, bias=False) if context else None
        self.glu = nn.Linear(128, 2 * (out or 128))
        self.skip = nn.Linear(width, out) if out else None
        if out != 1:
            self.norm = nn.LayerNorm(out or 128)

    def forward(self, x: Any, context: Any = None) -> Any:
        h = self.a(x)
        if self.c is not None and context is not None:
            h = h + self.c(context)[:, None]
        h = self.glu(self.i(h)).chunk(2, -1)[0]
        return h + (x if self.skip is None else self.skip(x))


class Select(nn.Module):
    def __init__(self, variables: int) -> None:
        super().__init__()
        self.joint = Grn(128 * variables, variables, context=True)
        self.each = nn.ModuleList(Grn(128) for _ in range(variables))

    def forward(self, x: Any, context: Any = None) -> Any:
        weights = self.joint(x.flatten(-2), context).softmax(-1)
        every = torch.stack([net(x[..., i, :]) for i, net in enumerate(self.each)], -1)
        return (every @ weights[..., None])[..., 0]


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.glu, self.norm = nn.Linear(128, 256), nn.LayerNorm(128)

    def forward(self, x: Any) -> Any:
        return self.norm(self.glu(x).chunk(2, -1)[0])


class Tft(nn.Module):
    def __init__(self, static: int) -> None:
        super().__init__()
        self.static = nn.Embedding(static, 128)
        self.known, self.target = nn.Parameter(real(2, 3, 128)), nn.Parameter(real(2, 1, 128))
        self.select_static, self.past, self.future = Select(1), Select(4), Select(3)
        self.contexts = nn.ModuleList(Grn(128) for _ in range(4))
        self.encoder = nn.LSTM(128, 128, batch_first=True)
        self.decoder = nn.LSTM(128, 128, batch_first=True)
        self.gates = nn.ModuleList(Gate() for _ in range(3))
        self.enrich, self.position = Grn(128, context=True), Grn(128)
        self.qkv, self.out = nn.Linear(128, 9 * 32, bias=False), nn.Linear(32, 128, bias=False)
        self.quantiles = nn.Linear(128, 3)

    def forward(self, past: Any, future: Any) -> Any:
        static = self.select_static(past[:, 0, :1])
        select, enrich, h, c = (net(static) for net in self.contexts)
        history, state = self.encoder(self.past(past, select), (h[None], c[None]))
        horizon, _ = self.decoder(self.future(future, select), state)
        x = self.enrich(self.gates[0](torch.cat([history, horizon], 1)), enrich)
        q, k, v = self.qkv(x).split([128, 128, 32], -1)
        q, k = (part.unflatten(-1, (4, 32)).transpose(1, 2) for part in (q, k))
        weights = (q @ k.transpose(2, 3)).softmax(-1)
        x = self.out((weights @ v[:, None]).mean(1))[:, -future.shape[1] :]
        return self.quantiles(self.gates[2](self.position(self.gates[1](x))))


class MoFlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bonds, self.atoms = nn.ModuleList(), nn.ModuleList()
        self.norms = nn.ParameterList([nn.Parameter(real(1)) for _ in range(2)])
        for _ in range(10):
            convs: list[Any] = []
            for a, c in ((800, 512), (512, 512)):
                convs += [nn.Conv2d(a, c, 3, padding=1), nn.BatchNorm2d(c)]
            self.bonds.append(nn.Sequential(*convs, nn.Conv2d(512, 1600, 3, padding=1)))
            self.norms.extend([nn.Parameter(real(1600)), nn.Parameter(real(1600))])
        for _ in range(38):
            linears = [nn.Linear(10, 256), nn.Linear(10, 1024), mlp(256, 512, 64, 20)]
            self.atoms.append(nn.ModuleList([*linears, *[nn.BatchNorm1d(40) for _ in range(3)]]))
            self.norms.extend([nn.Parameter(real(40)), nn.Parameter(real(40))])

    def forward(self, adjacency: Any, nodes: Any) -> None:
        for net in self.bonds:
            net(real(nodes.shape[0], 800, 2, 2))
        for own, edge, rest, *_ in self.atoms:
            messages = edge(nodes).unflatten(-1, (256, 4)).permute(0, 3, 1, 2)
            rest(own(nodes) + (adjacency @ messages).sum(1))


class Rgat(nn.Module):
    """Three layers of eleven graph attentions; every hop has 15, 10, 5 neighbours a node."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1024, 512, 512]
        self.project = nn.ModuleList(
            nn.ModuleList(nn.Linear(w, 512, bias=False) for _ in range(11)) for w in widths
        )
        self.scores = nn.ParameterList([nn.Parameter(real(3, 512)) for _ in range(33)])
        self.out = nn.Linear(512, 2983)

    def forward(self, seeds: int) -> Any:
        for relations, nodes in zip(self.project, (1 + 15 + 150 + 750, 166, 16), strict=True):
            for relation in relations:
                relation(real(seeds * nodes // 11, relation.in_features))
        return self.out(real(seeds, 512))


class Radial(nn.Module):
    def __init__(self, frequencies: int, width: int, out: int) -> None:
        super().__init__()
        self.shape = out, width * frequencies
        norms = nn.LayerNorm(32), nn.LayerNorm(32)
        last = nn.Linear(32, frequencies * width * out, bias=False)
        self.net = nn.Sequential(nn.Linear(5, 32), norms[0], nn.Linear(32, 32), norms[1], last)

    def forward(self, edge: Any, features: Any, dims: int) -> Any:
        weights = self.net(edge).view(-1, *self.shape)
        basis = real(len(edge), features.shape[2], self.shape[1] // features.shape[1] * dims)
        mixed = features @ basis if features.shape[2] > 1 else features.expand(-1, -1, dims)
        return weights @ mixed.reshape(len(edge), self.shape[1], -1)


class Se3(nn.Module):
    """Four degrees of 32 channels, 7 layers; keys and values of 16 channels each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(Radial(1, 6, 32 if d == 0 else 16) for d in range(4))
        self.first_query = nn.Linear(6, 16, bias=False)
        self.first_out = nn.ModuleList(
            nn.Linear(22 if d == 0 else 16, 32, bias=False) for d in range(4)
        )
        self.convs = nn.ModuleList(Radial(44, 32, 32) for _ in range(6))
        self.queries = nn.ModuleList(
            nn.ModuleList(nn.Linear(32, 16, bias=False) for _ in range(4)) for _ in range(6)
        )
        self.outs = nn.ModuleList(
            nn.ModuleList(nn.Linear(48, 32, bias=False) for _ in range(4)) for _ in range(6)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(4, 128) for _ in range(7))
        self.last, self.itself = Radial(4, 32, 128), nn.Linear(32, 128, bias=False)
        self.head = mlp(128, 128, 1)

    def forward(self, molecules: int, atoms: int, edge: Any) -> None:
        bonds = len(edge)
        for degree, conv in enumerate(self.first):
            conv(edge, real(bonds, 6, 1), 2 * degree + 1)
        self.first_query(real(atoms, 6))
        for degree, out in enumerate(self.first_out):
            out(real(atoms * (2 * degree + 1), 22 if degree == 0 else 16))
        for conv, queries, outs in zip(self.convs, self.queries, self.outs, strict=True):
            conv(edge, real(bonds, 32, 16), 16)
            for degree in range(4):
                queries[degree](real(atoms * (2 * degree + 1), 32))
                outs[degree](real(atoms * (2 * degree + 1), 48))
        self.last(edge, real(bonds, 32, 16), 1)
        self.itself(real(atoms, 32))
        self.head(real(molecules, 128))


# name, reference network, sequence length, its inputs for a batch of 64
REFERENCES: list[Reference] = [
    ("tft", lambda: Tft(369), 16, lambda: (real(64, 14, 4, 128), real(64, 2, 3, 128))),
    ("tft-traffic", lambda: Tft(963), 16, lambda: (real(64, 14, 4, 128), real(64, 2, 3, 128))),
    ("rgat-mlperf", Rgat, None, lambda: (64,)),
    ("moflow", MoFlow, None, lambda: (real(64, 4, 40, 40), real(64, 40, 10))),
    ("se3-transformer", Se3, None, lambda: (64, 1152, real(2387, 5))),
]


class TestSeriesAndMolecules(Compared):
    catalog = CATALOG
    references = REFERENCES
    batch = 64
