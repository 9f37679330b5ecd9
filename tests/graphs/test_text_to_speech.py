"""Text-to-speech graphs agree with networks written in torch."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
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

torch = pytest.importorskip("torch")
nn = torch.nn

CATALOG = catalog_of("tts")
graph = partial(graph_of_entry, CATALOG)


class Tacotron2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(148, 512)

        def conv(a: int, c: int) -> Any:
            return nn.Sequential(nn.Conv1d(a, c, 5, padding=2), nn.BatchNorm1d(c))

        self.convs = nn.Sequential(*[conv(512, 512) for _ in range(3)])
        self.lstm = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
        self.prenet = nn.Sequential(
            nn.Linear(80, 256, bias=False), nn.ReLU(), nn.Linear(256, 256, bias=False)
        )
        self.attention_rnn, self.decoder_rnn = nn.LSTMCell(768, 1024), nn.LSTMCell(1536, 1024)
        self.query, self.memory = nn.Linear(1024, 128, False), nn.Linear(512, 128, False)
        self.score = nn.Linear(128, 1, False)
        self.location = nn.Conv1d(2, 32, 31, padding=15, bias=False)
        self.location_dense = nn.Linear(32, 128, False)
        self.mel, self.gate = nn.Linear(1536, 80), nn.Linear(1536, 1)
        widths = [80, 512, 512, 512, 512, 80]
        self.postnet = nn.Sequential(*[conv(a, c) for a, c in pairwise(widths)])

    def forward(self, text: Any, mel: Any) -> Any:
        x = self.convs(self.embedding(text).transpose(1, 2)).transpose(1, 2)
        memory, _ = self.lstm(x)
        keys, frames = self.memory(memory), self.prenet(mel)
        context, weights = memory[:, 0], memory.new_zeros(text.shape[0], 2, text.shape[1])
        first = second = None
        outputs = []
        for step in range(mel.shape[1]):
            first = self.attention_rnn(torch.cat([frames[:, step], context], -1), first)
            located = self.location_dense(self.location(weights).transpose(1, 2))
            scores = self.score(torch.tanh(self.query(first[0])[:, None] + located + keys))
            context = torch.bmm(scores.squeeze(-1).softmax(-1)[:, None], memory)[:, 0]
            second = self.decoder_rnn(torch.cat([first[0], context], -1), second)
            joined = torch.cat([second[0], context], -1)
            outputs.append(self.mel(joined))
            self.gate(joined)
        return self.postnet(torch.stack(outputs, -1))


def weight_norm(layer: Any) -> Any:
    return nn.utils.parametrizations.weight_norm(layer)


class WaveGlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(80, 80, 1024, stride=256)
        self.flows = nn.ModuleList()
        for flow in range(12):
            n = 8 - 2 * (flow // 4)
            parts = nn.ModuleDict(
                {
                    "mix": nn.Conv1d(n, n, 1, bias=False),
                    "start": weight_norm(nn.Conv1d(n // 2, 512, 1)),
                    "end": nn.Conv1d(512, n, 1),
                }
            )
            for i in range(8):
                pad = 2**i
                parts[f"in{i}"] = weight_norm(nn.Conv1d(512, 1024, 3, dilation=2**i, padding=pad))
                parts[f"cond{i}"] = weight_norm(nn.Conv1d(640, 1024, 1))
                parts[f"skip{i}"] = weight_norm(nn.Conv1d(512, 1024 if i < 7 else 512, 1))
            self.flows.append(parts)

    def forward(self, mel: Any, audio: Any) -> None:
        groups = self.upsample(mel)[:, :, : audio.shape[1]].unfold(2, 8, 8)
        condition = groups.permute(0, 2, 1, 3).flatten(2).transpose(1, 2)
        x = audio.unfold(1, 8, 8).transpose(1, 2)
        for parts in self.flows:
            n = parts["mix"].in_channels
            h = parts["start"](parts["mix"](x[:, :n])[:, : n // 2])
            for i in range(8):
                gates = parts[f"in{i}"](h) + parts[f"cond{i}"](condition)
                h = h + parts[f"skip{i}"](gates[:, :512])[:, :512]
            parts["end"](h)


class FeedForwardTransformer(nn.Module):
    def __init__(self, heads: int, bias: bool, h: int = 384, d: int = 64) -> None:
        super().__init__()
        self.heads = heads
        for i in range(6):
            self.add_module(f"qkv{i}", nn.Linear(h, 3 * heads * d))
            self.add_module(f"out{i}", nn.Linear(heads * d, h, bias=bias))
            self.add_module(f"wide{i}", nn.Conv1d(h, 1536, 3, padding=1))
            self.add_module(f"back{i}", nn.Conv1d(1536, h, 3, padding=1))
            self.add_module(f"norms{i}", nn.ModuleList([nn.LayerNorm(h), nn.LayerNorm(h)]))

    def forward(self, x: Any) -> Any:
        parts = dict(self.named_children())
        for i in range(6):
            q, k, v = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)
                for part in parts[f"qkv{i}"](x).chunk(3, -1)
            )
            y = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
            y = y.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
            x = x + parts[f"out{i}"](y)
            x = x + parts[f"back{i}"](parts[f"wide{i}"](x.transpose(1, 2))).transpose(1, 2)
        return x


class FastPitch(nn.Module):
    def __init__(self, heads: int, predictors: int, conditions: int, aligner: bool, bias: bool):
        super().__init__()
        self.embedding = nn.Embedding(148, 384)
        self.encoder = FeedForwardTransformer(heads, bias)
        self.decoder = FeedForwardTransformer(heads, bias)
        self.predictors = nn.ModuleList()
        for _ in range(predictors):
            convs = [nn.Conv1d(384, 256, 3, padding=1), nn.Conv1d(256, 256, 3, padding=1)]
            parts = nn.ModuleList([*convs, nn.LayerNorm(256), nn.LayerNorm(256)])
            self.predictors.append(parts.append(nn.Linear(256, 1)))
        self.conditions = nn.ModuleList(
            [nn.Conv1d(1, 384, 3, padding=1) for _ in range(conditions)]
        )
        self.mel = nn.Linear(384, 80)
        if aligner:
            self.keys = nn.Sequential(nn.Conv1d(384, 768, 3, padding=1), nn.Conv1d(768, 80, 1))
            self.queries = nn.Sequential(
                nn.Conv1d(80, 160, 3, padding=1), nn.Conv1d(160, 80, 1), nn.Conv1d(80, 80, 1)
            )
            self.unused = nn.Conv2d(80, 1, 1)

    def forward(self, text: Any, repeats: Any) -> Any:
        embedded = self.embedding(text)
        x = self.encoder(embedded)
        channels = x.transpose(1, 2)
        for conv1, conv2, _, _, out in self.predictors:
            out(conv2(conv1(channels)).transpose(1, 2))
        for condition in self.conditions:
            condition(channels[:, :1])
        if hasattr(self, "keys"):
            self.keys(embedded.transpose(1, 2))
            self.queries(repeats[:, :80].new_empty(repeats.shape[0], 80, repeats.shape[1]))
        return self.mel(self.decoder(torch.bmm(repeats, x)))


class HifiGan(nn.Module):
    """Generator, and the discriminators as often as a training step runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(80, 512, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for i, (rate, kernel) in enumerate(zip((8, 8, 2, 2), (16, 16, 4, 4), strict=True)):
            a, c = 512 >> i, 512 >> (i + 1)
            up = nn.ConvTranspose1d(a, c, kernel, rate, padding=(kernel - rate) // 2)
            self.ups.append(weight_norm(up))
            self.blocks.append(
                nn.Sequential(
                    *[
                        weight_norm(nn.Conv1d(c, c, k, dilation=d, padding=(k - 1) * d // 2))
                        for k in (11, 7, 3)
                        for d in (1, 1, 3, 1, 5, 1)
                    ]
                )
            )
        self.post = weight_norm(nn.Conv1d(32, 1, 7, padding=3))
        self.periods = nn.ModuleList()
        for _ in range(5):
            widths = [1, 32, 128, 512, 1024]
            convs = [
                weight_norm(nn.Conv2d(a, c, (5, 1), (3, 1), (2, 0))) for a, c in pairwise(widths)
            ]
            convs.append(weight_norm(nn.Conv2d(1024, 1024, (5, 1), padding=(2, 0))))
            convs.append(weight_norm(nn.Conv2d(1024, 1, (3, 1), padding=(1, 0))))
            self.periods.append(nn.Sequential(*convs))
        self.scales = nn.ModuleList()
        for scale in range(3):
            layers = [(1, 128, 15, 1, 1), (128, 128, 41, 2, 4), (128, 256, 41, 2, 16)]
            layers += [(256, 512, 41, 4, 16), (512, 1024, 41, 4, 16), (1024, 1024, 41, 1, 16)]
            layers += [(1024, 1024, 5, 1, 1), (1024, 1, 3, 1, 1)]
            convs = [
                nn.Conv1d(a, c, k, s, k // 2, groups=g) for a, c, k, s, g in layers
            ]  # the first scale has spectral norm, which adds no parameter
            self.scales.append(nn.Sequential(*[weight_norm(c) if scale else c for c in convs]))

    def forward(self, mel: Any) -> None:
        x = self.pre(mel)
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = block(up(x))
        audio = self.post(x)
        for _ in range(4):
            for period, discriminator in zip((2, 3, 5, 7, 11), self.periods, strict=True):
                padded = nn.functional.pad(audio, (0, -audio.shape[-1] % period))
                discriminator(padded.unflatten(-1, (-1, period)))
            for scale, discriminator in enumerate(self.scales):
                discriminator(audio[..., :: 2**scale])


# name, reference network, sequence length, its inputs for a batch of two
REFERENCES: list[Reference] = [
    ("tacotron2", Tacotron2, 40, lambda: (ids(2, 7), real(2, 40, 80))),
    ("waveglow", WaveGlow, 8000, lambda: (real(2, 80, 32), real(2, 8000))),
    (
        "fastpitch",
        lambda: FastPitch(1, 3, 2, True, False),
        848,
        lambda: (ids(2, 150), real(2, 848, 150)),
    ),
    (
        "fastpitch-1.0",
        lambda: FastPitch(1, 2, 1, False, False),
        848,
        lambda: (ids(2, 150), real(2, 848, 150)),
    ),
    (
        "fastspeech",
        lambda: FastPitch(2, 1, 0, False, True),
        848,
        lambda: (ids(2, 150), real(2, 848, 150)),
    ),
    ("hifigan-v1", HifiGan, 8192, lambda: (real(2, 80, 32),)),
]


class TestVoices(Compared):
    catalog = CATALOG
    references = REFERENCES


@pytest.mark.parametrize("name", CATALOG)
def test_twice_the_batch_is_twice_the_work(name: str) -> None:
    one, two = graph(name, batch=4), graph(name, batch=8)
    assert two.flops == pytest.approx(2 * one.flops, rel=1e-3)
    assert two.parameters == one.parameters


def test_tacotron_launches_grow_with_the_frames() -> None:
    def launches(frames: int) -> float:
        return sum(op.kernels * op.count for op in graph("tacotron2", seq_len=frames).operators)

    per_frame = (launches(800) - launches(400)) / 400
    assert 100 < per_frame < 250
