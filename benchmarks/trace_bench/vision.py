"""Image and speech networks of transformers and torch with the sizes of the catalog's entries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

from .reference import Build, Reference, Sizes

hf: Any = import_module("transformers")  # its configurations are not typed
CLASSES = 1000


def _classifier(name: str, **config: Any) -> Build:
    def build(_: Sizes) -> torch.nn.Module:
        settings = getattr(hf, f"{name}Config")(num_labels=CLASSES, **config)
        made: torch.nn.Module = getattr(hf, f"{name}ForImageClassification")._from_config(
            settings, attn_implementation="eager"
        )
        return made

    return build


def _vit(a: Sizes) -> torch.nn.Module:
    settings = hf.ViTConfig(
        num_labels=CLASSES,
        hidden_size=a["hidden"],
        num_hidden_layers=a["layers"],
        num_attention_heads=a["heads"],
        intermediate_size=4 * a["hidden"],
        patch_size=a["patch"],
    )
    made: torch.nn.Module = hf.ViTForImageClassification._from_config(
        settings, attn_implementation="eager"
    )
    return made


def vgg(a: Sizes) -> torch.nn.Module:
    """VGG with ReLU, dropout and, where the entry says so, batch norm."""
    layers: list[nn.Module] = []
    width = 3
    for out, repeats in zip((64, 128, 256, 512, 512), a["convolutions"], strict=True):
        for _ in range(repeats):
            layers.append(nn.Conv2d(width, out, 3, padding=1))
            layers += [nn.BatchNorm2d(out)] if a.get("batch_norm") else []
            layers.append(nn.ReLU(inplace=True))
            width = out
        layers.append(nn.MaxPool2d(2))
    head: list[nn.Module] = []
    for into, out in ((512 * 49, 4096), (4096, 4096)):
        head += [nn.Linear(into, out), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(4096, CLASSES))


class WordLstm(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, 2, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of each next word."""
        logits: torch.Tensor = self.decoder(self.lstm(self.embedding(words))[0])
        return logits


WORDS: dict[str, tuple[int | str, ...]] = {"words": ("S",)}
NETWORKS = (
    Reference(
        name="resnet18",
        build=_classifier(
            "ResNet", layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512]
        ),
    ),
    Reference(
        name="resnet34",
        build=_classifier("ResNet", layer_type="basic", hidden_sizes=[64, 128, 256, 512]),
    ),
    Reference(name="resnet50", build=_classifier("ResNet")),
    Reference(name="resnet50-v1", build=_classifier("ResNet", downsample_in_bottleneck=True)),
    Reference(
        name="regnety-040",
        build=_classifier("RegNet", hidden_sizes=[128, 192, 512, 1088], groups_width=64),
    ),
    Reference(name="convnext-tiny", build=_classifier("ConvNext")),
    Reference(name="mobilenet-v1", build=_classifier("MobileNetV1", tf_padding=False)),
    Reference(name="mobilenet-v2", build=_classifier("MobileNetV2", tf_padding=False)),
    Reference(
        name="poolformer_s12",
        build=_classifier("PoolFormer", depths=[2, 2, 6, 2], hidden_sizes=[64, 128, 320, 512]),
    ),
    Reference(name="swin-tiny", build=_classifier("Swin")),
    Reference(name="vit-base-16", build=_vit, depth=True),
    Reference(name="vit-small-16", build=_vit, depth=True),
    Reference(name="vgg11", build=vgg),
    Reference(name="vgg16-bn", build=vgg),
    Reference(name="ptb-lstm", build=lambda _: WordLstm(10000, 200), seq_len=20, inputs=WORDS),
    Reference(
        name="ptb-lstm-large", build=lambda _: WordLstm(10000, 1500), seq_len=36, inputs=WORDS
    ),
)
