"""Activations of a graph are the bytes that torch's autograd keeps for the same network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from predictor.graphs.catalog import entry_of
from predictor.graphs.operator import Workload
from predictor.physics.job_graph import Storage
from predictor.physics.memory.account import Checkpointing, account_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn, functional = torch.nn, torch.nn.functional

BATCH = 4
TOLERANCE = 0.1
FP32 = Storage(4, 4, 4, 4, 4)
AUTOCAST = Storage(2, 2, 4, 4, 4, autocast=True)
Run = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def cuda_dropout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dropout with a mask of one byte, as CUDA has it; the CPU keeps four."""

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(x, p, True)[0] if p and training else x

    monkeypatch.setattr(functional, "dropout", dropout)
    return None


def kept_by_torch(network: Any, run: Run) -> int:
    """Bytes of all storages that autograd keeps, without weights and buffers."""
    own = {t.untyped_storage()._cdata for t in (*network.parameters(), *network.buffers())}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = run(network)
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


def predicted(name: str, storage: Storage, seq_len: int | None = None, **changes: str) -> float:
    entry = entry_of(name)
    work = Workload(BATCH, seq_len=seq_len, image_size=entry.image_size)
    pairs = tuple(sorted(changes.items()))
    account = account_of(entry.name, pairs, work, storage, Checkpointing(), False)
    return account.start.kept + account.body.kept + account.end.kept


def tokens(length: int) -> Any:
    return torch.zeros(BATCH, length, dtype=torch.long, device="meta")


def classify(network: Any) -> Any:
    found = network(torch.empty(BATCH, 3, 224, 224, device="meta"))
    labels = torch.zeros(BATCH, dtype=torch.long, device="meta")
    return functional.cross_entropy(getattr(found, "logits", found), labels)


def vgg16() -> Any:
    layers, channels = [], 3
    for repeats, width in zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512), strict=True):
        for _ in range(repeats):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    widths = (25088, 4096, 4096)
    for a, b in pairwise(widths):
        layers += [nn.Flatten(), nn.Linear(a, b), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


def image_model(kind: str, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        config = getattr(transformers, f"{kind}Config")(num_labels=1000, **settings)
        return getattr(transformers, f"{kind}ForImageClassification")(config)

    return build


EAGER = {"attn_implementation": "eager"}
IMAGES = {
    "resnet50": image_model("ResNet"),
    "vgg16": vgg16,
    "mobilenet-v2": image_model("MobileNetV2"),
    "efficientnet-b0": image_model(
        "EfficientNet",
        image_size=224,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
    ),
    "convnext-tiny": image_model("ConvNext"),
    "vit-base-16": image_model("ViT", **EAGER),
    "swin-tiny": image_model("Swin", **EAGER),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_models_keep_what_torch_keeps(name: str) -> None:
    with torch.device("meta"):
        network = IMAGES[name]().train()
    assert predicted(name, FP32) == pytest.approx(kept_by_torch(network, classify), rel=TOLERANCE)


def test_bert_keeps_what_torch_keeps() -> None:
    with torch.device("meta"):
        config = transformers.BertConfig(**EAGER)
        network = transformers.BertForPreTraining(config).train()

    def run(network: Any) -> Any:
        first = torch.zeros(BATCH, dtype=torch.long, device="meta")
        return network(tokens(128), labels=tokens(128), next_sentence_label=first).loss

    found = predicted("bert-base", FP32, 128, predictions="128")
    assert found == pytest.approx(kept_by_torch(network, run), rel=TOLERANCE)


def test_gradients_summed_over_the_turns_of_a_loop_keep_nothing_going_forward() -> None:
    """34.3 MiB is what torch keeps of tests/graphs' Tacotron 2, 4 utterances of 80 frames."""
    assert predicted("tacotron2", FP32, 80) == pytest.approx(34.3 * 2**20, rel=TOLERANCE)


def test_gpt2_keeps_what_torch_keeps() -> None:
    with torch.device("meta"):
        config = transformers.GPT2Config(loss_type="ForCausalLMLoss", **EAGER)
        network = transformers.GPT2LMHeadModel(config).train()
    kept = kept_by_torch(network, lambda n: n(tokens(512), labels=tokens(512)).loss)
    assert predicted("gpt2", FP32, 512) == pytest.approx(kept, rel=TOLERANCE)


def test_t5_keeps_what_torch_keeps() -> None:
    with torch.device("meta"):
        config = transformers.T5Config(decoder_start_token_id=0)
        network = transformers.T5ForConditionalGeneration(config).train()
    kept = kept_by_torch(network, lambda n: n(tokens(256), labels=tokens(128)).loss)
    found = predicted("t5-small", FP32, 256, target_len="128")
    assert found == pytest.approx(kept, rel=TOLERANCE)


@pytest.mark.parametrize("name", [pytest.param("resnet50", marks=pytest.mark.slow), "mobilenet-v2"])
def test_autocast_halves_what_a_convolutional_network_keeps(name: str) -> None:
    """On the CPU, in bf16: its lists agree with CUDA's on convolutions, norms and ReLU."""
    size, network = 128, IMAGES[name]().train()

    def run(network: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            found = network(torch.zeros(BATCH, 3, size, size)).logits
            return functional.cross_entropy(found, torch.zeros(BATCH, dtype=torch.long))

    entry = entry_of(name)
    work = Workload(BATCH, image_size=(size, size))
    account = account_of(entry.name, (), work, AUTOCAST, Checkpointing(), False)
    casts = 2 * account.matrix_weights
    found = account.body.kept + account.end.kept + casts
    assert found == pytest.approx(kept_by_torch(network, run), rel=TOLERANCE)
