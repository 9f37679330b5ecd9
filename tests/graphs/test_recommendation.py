"""Recommendation graphs agree with networks written in torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
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

from predictor.graphs.operator import Kind

torch = pytest.importorskip("torch")
nn = torch.nn

CATALOG = catalog_of("recommendation")
graph = partial(graph_of_entry, CATALOG)


class NeuMf(nn.Module):
    def __init__(self, users: int = 138493, items: int = 26744) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(rows, width) for width in (64, 128) for rows in (users, items)
        )
        self.mlp, self.out = mlp(256, 256, 128, 64), nn.Linear(128, 1)

    def forward(self, x: Any) -> Any:
        return self.out(torch.cat([x[:, :64], self.mlp(x)], -1))


class Dlrm(nn.Module):
    def __init__(self, rows: Sequence[int], cross: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 128) for n in rows)
        self.bottom = mlp(13, 512, 256, 128)
        self.cross = nn.ModuleList()
        if cross:
            self.cross.extend(
                nn.Sequential(nn.Linear(3456, 512, bias=False), nn.Linear(512, 3456))
                for _ in range(3)
            )
        self.top = mlp(3456 if cross else 480, 1024, 1024, 512, 256, 1)

    def forward(self, dense: Any) -> Any:
        vectors = self.bottom(dense)[:, None].expand(-1, 27, -1)
        if not self.cross:
            torch.bmm(vectors, vectors.transpose(1, 2))
            return self.top(real(dense.shape[0], 480))
        x = x0 = vectors.flatten(1)
        for layer in self.cross:
            x = x0 * layer(x) + x
        return self.top(x)


class WideAndDeep(nn.Module):
    def __init__(self, tables: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for width, rows in tables)
        self.wide = nn.Linear(sum(rows for _, rows in tables) + 13, 1)
        self.deep = mlp(13 + sum(width for width, _ in tables), *[1024] * 5, 1)

    def forward(self, x: Any) -> Any:
        return self.deep(x)


class Autoencoder(nn.Module):
    def __init__(self, widths: Sequence[int], variational: bool, seen: int) -> None:
        super().__init__()
        code = widths[-1]
        sizes = [20108, *widths]
        self.seen = seen  # non-zeros of a sparse input; its product is no dense GEMM
        self.first = nn.Linear(*sizes[:2])
        self.encoder = nn.Sequential(
            *[nn.Linear(a, 2 * c if variational and c == code else c) for a, c in pairwise(widths)]
        )
        self.decoder = mlp(*reversed(sizes))
        self.code = code

    def forward(self, x: Any) -> Any:
        weight = self.first.weight[:, : self.seen]
        h = x[:, : self.seen] @ weight.t()
        return self.decoder(self.encoder(h)[:, : self.code])


class Classifier(nn.Module):
    """Hidden layers and a score; ``prelu`` adds a slope a unit."""

    def __init__(self, prelu: bool, *widths: int) -> None:
        super().__init__()
        self.layers = mlp(*widths, 1)
        self.slopes = nn.ModuleList(nn.PReLU(w) for w in widths[1:] if prelu)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Sim(nn.Module):
    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 16) for n in rows)
        self.one, self.two = Classifier(True, 80, 200), Classifier(True, 208, 200, 80)
        self.auxiliary, self.score = Classifier(False, 128, 100, 50), Classifier(False, 384, 80, 40)
        self.item, self.slope = nn.Linear(32, 96), nn.PReLU(96)
        self.gru = nn.GRU(32, 96)
        self.gates, self.candidate = nn.Linear(192, 192), nn.Linear(192, 96)

    def forward(self, x: Any) -> None:
        rows = x.shape[0]
        self.one(x[:, :80])
        self.two(x[:, :208])
        self.item(x[:, :32])
        states, _ = self.gru(x[:, :32].expand(10, -1, -1))
        self.score(states.repeat(1, 1, 4))
        for _ in range(2):
            self.auxiliary(real(9 * rows, 128))
        for state in states:
            joined = torch.cat([state, state], -1)
            self.gates(joined)
            self.candidate(joined)


def architecture(name: str, key: str) -> Any:
    return CATALOG[name]["architecture"][key]


# name, reference network, sequence length, its inputs for a batch of 64
REFERENCES: list[Reference] = [
    ("ncf", NeuMf, None, lambda: (real(64, 256),)),
    *[
        (
            name,
            lambda name=name: Dlrm(architecture(name, "table_rows"), "dcn" in name),
            None,
            lambda: (real(64, 13),),
        )
        for name in ("dlrm", "dcnv2", "dlrm-mlperf", "dlrm-dcnv2")
    ],
    (
        "wide-and-deep",
        lambda: WideAndDeep(architecture("wide-and-deep", "tables")),
        None,
        lambda: (real(64, 1248),),
    ),
    ("vae-cf", lambda: Autoencoder([600, 200], True, 73), None, lambda: (real(64, 20108),)),
    (
        "recoder-autoencoder",
        lambda: Autoencoder([200], False, 20108),
        None,
        lambda: (real(64, 20108),),
    ),
    ("sim", lambda: Sim(architecture("sim", "table_rows")), None, lambda: (real(64, 208),)),
]


class TestRecommendation(Compared):
    catalog = CATALOG
    references = REFERENCES
    batch = 64


def test_recommendation_tables_are_sparse() -> None:
    dlrm = graph("dlrm")
    assert dlrm.sparse_parameters == 128 * sum(architecture("dlrm", "table_rows"))
    assert graph("ncf").sparse_parameters == 0


def test_multi_hot_fields_look_up_more_rows_and_hand_on_as_many_vectors() -> None:
    def look_up(name: str) -> tuple[float, float]:
        first = next(op for op in graph(name).operators if op.kind is Kind.EMBEDDING)
        return first.reads, first.writes

    (many, bags), (one, vectors) = look_up("dlrm-dcnv2"), look_up("dcnv2")
    assert many > 8 * one
    assert bags == pytest.approx(vectors)


def test_criteo_vocabulary_changes_the_tables_of_wide_and_deep_only() -> None:
    criteo = {"hidden_layers": 7, "hidden": 1024, "deep_embedding_vec": 16}
    small = graph("wide-and-deep", deep_vocab=1_000_000, **criteo)
    large = graph("wide-and-deep", deep_vocab=50_000_000, **criteo)
    assert large.flops == small.flops
    assert large.sparse_parameters == 50 * small.sparse_parameters
