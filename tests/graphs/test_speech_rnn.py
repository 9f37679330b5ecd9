"""Recurrent and speech graphs agree with networks written in torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from references import (
    Compared,
    Reference,
    catalog_of,
    graph_of_entry,
    ids,
    real,
)

from predictor.graphs.operator import Direction

torch = pytest.importorskip("torch")
nn = torch.nn

CATALOG = catalog_of("rnn", "speech")
graph = partial(graph_of_entry, CATALOG)


class Gnmt(nn.Module):
    def __init__(self, vocab: int = 32320, h: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, h)
        self.first = nn.LSTM(h, h, bidirectional=True)
        self.encoder = nn.ModuleList([nn.LSTM(2 * h, h), nn.LSTM(h, h), nn.LSTM(h, h)])
        self.attended = nn.LSTM(h, h)
        self.query, self.key = nn.Linear(h, h, bias=False), nn.Linear(h, h, bias=False)
        self.score = nn.Parameter(torch.empty(h))
        self.bias, self.scale = nn.Parameter(torch.empty(h)), nn.Parameter(torch.empty(1))
        self.decoder = nn.ModuleList([nn.LSTM(2 * h, h) for _ in range(3)])
        self.classifier = nn.Linear(h, vocab)

    def forward(self, source: Any, target: Any) -> Any:
        x, _ = self.first(self.embedding(source))
        for layer in self.encoder:
            x, _ = layer(x)
        y, _ = self.attended(self.embedding(target))
        query, key = self.query(y).transpose(0, 1), self.key(x).transpose(0, 1)
        pairs = torch.tanh(query[:, :, None] + key[:, None] + self.bias)
        weights = pairs.matmul(self.score[:, None]).squeeze(-1).softmax(-1)
        context = torch.bmm(weights, x.transpose(0, 1)).transpose(0, 1)
        for layer in self.decoder:
            y, _ = layer(torch.cat([y, context], -1))
        return self.classifier(y)


class WordLstm(nn.Module):
    def __init__(self, vocab: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding)
        self.lstm = nn.LSTM(embedding, hidden, 2)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, words: Any) -> Any:
        return self.decoder(self.lstm(self.embedding(words))[0])


class Jasper(nn.Module):
    def __init__(self, blocks: list[list[int]], separable: bool, dense: bool) -> None:
        super().__init__()
        self.dense = dense
        self.blocks, self.residuals = nn.ModuleList(), nn.ModuleList()
        width = 64
        panes: list[int] = []
        for filters, kernel, layers, residual, stride, dilation in blocks:
            sources = (panes if dense else [width]) if residual else []
            self.residuals.append(
                nn.ModuleList(
                    nn.Sequential(nn.Conv1d(c, filters, 1, bias=False), nn.BatchNorm1d(filters))
                    for c in sources
                )
            )
            block = nn.Sequential()
            for _ in range(layers):
                pad = (kernel - 1) * dilation // 2
                if separable and kernel > 1:
                    block.append(
                        nn.Conv1d(
                            width, width, kernel, stride, pad, dilation, groups=width, bias=False
                        )
                    )
                    block.append(nn.Conv1d(width, filters, 1, bias=False))
                else:
                    block.append(
                        nn.Conv1d(width, filters, kernel, stride, pad, dilation, bias=False)
                    )
                block.append(nn.BatchNorm1d(filters))
                width = filters
            self.blocks.append(block)
            panes = [*panes, filters]
        self.decoder = nn.Conv1d(width, 29, 1)

    def forward(self, x: Any) -> Any:
        outputs: list[Any] = []
        for block, residuals in zip(self.blocks, self.residuals, strict=True):
            sources = outputs if self.dense else [x]
            y = block(x)
            for residual, source in zip(residuals, sources, strict=False):
                y = y + residual(source)
            x = y.relu()
            outputs.append(x)
        return self.decoder(x)


class Rnnt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre, self.post = nn.LSTM(240, 1024, 2), nn.LSTM(2048, 1024, 3)
        self.embedding, self.predictor = nn.Embedding(1023, 512), nn.LSTM(512, 512, 2)
        self.encoded, self.predicted = nn.Linear(1024, 512), nn.Linear(512, 512)
        self.joint = nn.Linear(512, 1024)

    def forward(self, audio: Any, text: Any) -> Any:
        x, _ = self.pre(audio)
        x, _ = self.post(torch.cat([x[::2], x[1::2]], -1))
        y, _ = self.predictor(self.embedding(text))
        return self.joint((self.encoded(x)[:, None] + self.predicted(y)[None]).relu())


def pretraining_wav2vec2() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.Wav2Vec2Config(attn_implementation="eager")
    model = transformers.Wav2Vec2ForPreTraining(config).eval()
    return model.to("meta")  # its code book ignores the default device


def blocks(name: str) -> list[list[int]]:
    found: list[list[int]] = CATALOG[name]["architecture"]["blocks"]
    return found


# name, reference network, sequence length, its inputs for a batch of two
REFERENCES: list[Reference] = [
    ("gnmt-v2", Gnmt, 6, lambda: (ids(6, 2), ids(6, 2))),
    ("lstm-lm", lambda: WordLstm(33278, 200, 200), 35, lambda: (ids(35, 2),)),
    ("ptb-lstm", lambda: WordLstm(10000, 200, 200), 20, lambda: (ids(20, 2),)),
    ("ptb-lstm-large", lambda: WordLstm(10000, 1500, 1500), 35, lambda: (ids(35, 2),)),
    (
        "jasper-10x5dr",
        lambda: Jasper(blocks("jasper-10x5dr"), False, True),
        1648,
        lambda: (real(2, 64, 1648),),
    ),
    (
        "quartznet-15x5",
        lambda: Jasper(blocks("quartznet-15x5"), True, False),
        1648,
        lambda: (real(2, 64, 1648),),
    ),
    ("rnnt-mlperf", Rnnt, 60, lambda: (real(20, 2, 240), ids(4, 2))),
    ("wav2vec2-base-plain", pretraining_wav2vec2, 250000, lambda: (real(2, 250000),)),
]


class TestSpeech(Compared):
    catalog = CATALOG
    references = REFERENCES


@pytest.mark.parametrize("name", CATALOG)
def test_twice_the_batch_is_twice_the_work(name: str) -> None:
    one, two = graph(name, batch=4), graph(name, batch=8)
    assert two.flops == pytest.approx(2 * one.flops, rel=1e-3)
    assert two.parameters == one.parameters


def test_a_frozen_feature_extractor_has_no_gradients() -> None:
    tuned = graph("wav2vec2-base-ctc")
    convolutions = [op for op in tuned.operators if op.kind == "conv"]
    backward = [op for op in convolutions if op.direction is not Direction.FORWARD]
    assert len(backward) == 2  # of the positional convolution alone
    assert tuned.trainable_parameters < tuned.parameters
