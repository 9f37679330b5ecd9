"""Image classifiers: graphs agree with torch modules and with the figures of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import ModelEntry, entries, entry_of
from predictor.graphs.families import builder_of
from predictor.graphs.operator import Direction, Graph, Kind, Workload

GROUPS = {"cnn", "efficientnet", "vision-transformer"}
CATALOG = [e.name for e in entries() if e.group in GROUPS and e.family != "recorded"]


def graph(entry: ModelEntry, batch: int = 1, *, flash: bool = False, **changes: Any) -> Graph:
    size = changes.pop("image_size", entry.image_size)
    b = GraphBuilder(Workload(batch, image_size=size, flash_attention=flash))
    builder_of(entry.family)(b, **{**entry.architecture, **changes})
    return b.build()


# --- the catalog's figures, read off torchvision, timm and transformers ------------------------


# tests/cli/test_data.py compares them with the graphs.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("resnext50-32x4d", 25_028_904),
        ("resnext101-32x8d", 88_791_336),
        ("resnext101-64x4d", 83_455_272),
        ("wide-resnet50-2", 68_883_240),
        ("wide-resnet101-2", 126_886_696),
        ("vgg16", 138_357_544),
        ("vgg19-bn", 143_678_248),
        ("torchvision:alexnet", 61_100_840),
        ("torchvision:inception_v3", 27_161_264),
        ("densenet121", 7_978_856),
        ("densenet201", 20_013_928),
        ("mobilenet-v2", 3_504_872),
        ("mnasnet-1.0", 4_383_312),
        ("shufflenet-v2-x1.0", 2_278_604),
        ("squeezenet-1.0", 1_248_424),
        ("efficientnet-b0", 5_288_548),
        ("efficientnet-b7", 66_347_960),
        ("efficientnet-v2-s", 21_458_488),
        ("convnext-tiny", 28_589_128),
        ("vit-base-16", 86_567_656),
        ("vit-large-16", 304_326_632),
        ("swin-tiny", 28_288_354),
    ],
)
def test_catalog_states_the_parameters_that_torchvision_documents(
    name: str, parameters: int
) -> None:
    assert entry_of(name).parameters == parameters


# --- networks built in torch -------------------------------------------------------------------

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn


def bottleneck(a: int, planes: int, stride: int, groups: int, squeeze: bool) -> Any:
    """A residual block of the (SE-)ResNeXt family, without its activations."""
    width, out = planes * 4 // 64 * groups, planes * 4
    path = [
        nn.Conv2d(a, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, out, 1, bias=False),
        nn.BatchNorm2d(out),
    ]
    if squeeze:
        gate = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(out, out // 16, 1), nn.Conv2d(out // 16, out, 1)]
        path.append(Gate(nn.Sequential(*gate)))
    down = [nn.Conv2d(a, out, 1, stride, bias=False), nn.BatchNorm2d(out)]
    return Sum(nn.Sequential(*path), nn.Sequential(*down) if a != out else nn.Identity())


class Gate(nn.Module):
    def __init__(self, gate: Any) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Any) -> Any:
        return x * torch.sigmoid(self.gate(x))


class Sum(nn.Module):
    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        return sum(branch(x) for branch in self.branches)


class Concatenate(Sum):
    def forward(self, x: Any) -> Any:
        return torch.cat([branch(x) for branch in self.branches], 1)


def resnext(blocks: list[int], *, squeeze: bool) -> Any:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, repeats in enumerate(blocks):
        for position in range(repeats):
            stride = 2 if stage and not position else 1
            layers.append(bottleneck(width, 64 * 2**stage, stride, 32, squeeze))
            width = 256 * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def vgg16() -> Any:
    layers: list[Any] = []
    width = 3
    for out, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            layers.append(nn.Conv2d(width, out, 3, padding=1))
            width = out
        layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(512 * 49, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


def densenet121() -> Any:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for block, repeats in enumerate((6, 12, 24, 16)):
        if block:
            layers += [nn.BatchNorm2d(width), nn.Conv2d(width, width // 2, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            width //= 2
        for _ in range(repeats):
            layer = nn.Sequential(
                nn.BatchNorm2d(width),
                nn.Conv2d(width, 128, 1, bias=False),
                nn.BatchNorm2d(128),
                nn.Conv2d(128, 32, 3, padding=1, bias=False),
            )
            layers.append(Concatenate(nn.Identity(), layer))
            width += 32
    tail = [nn.BatchNorm2d(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*layers, *tail)


def pretrained(name: str, **config: Any) -> Callable[[], Any]:
    """The image classifier of a transformers architecture, with 1000 classes."""

    def build() -> Any:
        settings = getattr(transformers, f"{name}Config")(num_labels=1000, **config)
        return getattr(transformers, f"{name}ForImageClassification")(settings)

    return build


REFERENCES: dict[str, Callable[[], Any]] = {
    "resnet50": pretrained("ResNet"),
    "resnet50-v1": pretrained("ResNet", downsample_in_bottleneck=True),
    "resnet18": pretrained(
        "ResNet", layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512]
    ),
    "resnext101-32x4d": lambda: resnext([3, 4, 23, 3], squeeze=False),
    "se-resnext101-32x4d": lambda: resnext([3, 4, 23, 3], squeeze=True),
    "vgg16": vgg16,
    "densenet121": densenet121,
    "regnety-040": pretrained("RegNet", hidden_sizes=[128, 192, 512, 1088], groups_width=64),
    "convnext-tiny": pretrained("ConvNext"),
    "mobilenet-v1": pretrained("MobileNetV1"),
    "mobilenet-v2": pretrained("MobileNetV2", tf_padding=False),
    "efficientnet-b4": pretrained(
        "EfficientNet",
        width_coefficient=1.4,
        depth_coefficient=1.8,
        hidden_dim=1792,
        image_size=380,
    ),
    "vit-base-16": pretrained("ViT"),
    "swin-tiny": pretrained("Swin"),
}


# transformers pads strided convolutions so that odd maps lose a row: compare where none is odd.
SIZES: dict[str, tuple[int, ...]] = {"efficientnet-b4": (384, 384)}


@pytest.mark.parametrize("name", REFERENCES)
def test_parameters_and_flops_equal_a_torch_module(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    entry = entry_of(name)
    size = SIZES.get(name, entry.image_size or ())
    with torch.device("meta"):
        module = REFERENCES[name]().eval()
        image = torch.empty(1, 3, *size)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        module(image)
    built = graph(entry, image_size=size)
    assert built.parameters == sum(p.numel() for p in module.parameters())
    assert built.forward_flops == pytest.approx(counter.get_total_flops(), rel=0.01)


# --- what the graph must get right beyond sums -------------------------------------------------


def count(built: Graph, kind: Kind, direction: Direction) -> float:
    return sum(o.count for o in built.operators if o.kind is kind and o.direction is direction)


def test_first_convolution_has_no_data_gradient() -> None:
    built = graph(entry_of("resnet50"))
    assert count(built, Kind.CONV, Direction.FORWARD) == 53
    assert count(built, Kind.CONV, Direction.WEIGHT_GRADIENT) == 53
    assert count(built, Kind.CONV, Direction.DATA_GRADIENT) == 52


def test_small_images_keep_their_resolution() -> None:
    """ResNet-18 on CIFAR-10 costs 0.56 GMAC (3x3 stem, no max-pool), not a 49th of ImageNet."""
    built = graph(entry_of("resnet18"), image_size=(32, 32), classes=10)
    assert built.forward_flops / 2e9 == pytest.approx(0.556, rel=0.01)
    assert built.parameters == 11_173_962


def test_quantisation_adds_memory_traffic_but_no_flops() -> None:
    plain, quantised = graph(entry_of("efficientnet-b0")), graph(entry_of("efficientnet-quant-b0"))
    assert quantised.flops == plain.flops
    traffic = [sum((o.reads + o.writes) * o.count for o in g.operators) for g in (plain, quantised)]
    assert traffic[1] > 1.3 * traffic[0]


def test_flash_attention_leaves_the_scores_out() -> None:
    entry = entry_of("vit-base-16")
    plain, fused = graph(entry), graph(entry, flash=True)
    assert count(fused, Kind.SOFTMAX, Direction.FORWARD) == 0
    assert fused.forward_flops == pytest.approx(plain.forward_flops)
    assert fused.parameters == plain.parameters


def test_class_centres_of_a_face_head_are_not_reduced_densely() -> None:
    entry = entry_of("insightface-r100")
    built = graph(entry, classes=85742)
    assert built.sparse_parameters == 85742 * 512
    assert built.parameters - built.sparse_parameters == 65_156_160
    sampled = graph(entry, classes=85742, partial_fc_sample_ratio=0.1)
    assert sampled.parameters == built.parameters
    assert sampled.forward_flops < built.forward_flops


def test_every_graph_is_linear_in_the_batch() -> None:
    pairs = {name: (graph(entry_of(name)), graph(entry_of(name), batch=4)) for name in CATALOG}
    assert len(pairs) > 100
    assert [
        name
        for name, (one, four) in pairs.items()
        if four.forward_flops != pytest.approx(4 * one.forward_flops, rel=0.07)
        or four.parameters != one.parameters
        or len(four.operators) != len(one.operators)
    ] == []


def test_aliases_of_the_measured_sites_mean_the_same_network() -> None:
    for name, alias in (
        ("resnet50", "resnet50-v1.5"),
        ("resnet50", "resnet50-v1b"),
        ("resnet50", "timm:tv_resnet50"),
        ("efficientnet-b4", "timm:tf_efficientnet_b4_ns"),
        ("mnasnet-0.5", "torchvision:mnasnet0_5"),
        ("convnext-base-384", "timm:convnext_base_384_in22ft1k"),
        ("vit-base-16", "timm:deit_base_patch16_224"),
        ("densenet121", "timm:tv_densenet121"),
    ):
        assert entry_of(alias).name == name
    assert entry_of("resnet50-v1").name == "resnet50-v1"
    assert entry_of("torchvision:inception_v3").name != entry_of("timm:inception_v3").name
