"""Detector graphs agree with networks written in torch, and with published figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from predictor.graphs.builder import GraphBuilder
from predictor.graphs.families import builder_of
from predictor.graphs.operator import Direction, Graph, Kind, Workload

torch = pytest.importorskip("torch")
nn = torch.nn
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

CATALOG: dict[str, dict[str, Any]] = yaml.load(
    (Path(__file__).parents[2] / "profiles" / "models" / "detection.yaml").read_text(),
    yaml.CSafeLoader,
)


def graph(name: str, batch: int = 1, **changes: Any) -> Graph:
    entry = CATALOG[name]
    b = GraphBuilder(Workload(batch, image_size=tuple(entry["defaults"]["image_size"])))
    builder_of(entry["family"])(b, **{**entry["architecture"], **changes})
    return b.build()


def real(*shape: int) -> Any:
    return torch.empty(shape, device="meta")


def conv(a: int, c: int, k: int = 3, **options: Any) -> Any:
    options.setdefault("padding", k // 2)
    return nn.Conv2d(a, c, k, **options)


def parameters(*modules: Any) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


class Block(nn.Module):
    def __init__(self, a: int, stage: int, stride: int, t: dict[str, Any], dilation: int) -> None:
        super().__init__()
        groups, out = t.get("groups", 1), 256 * 2**stage
        width = t.get("width_per_group", 64) * groups * 2**stage
        one, three = (stride, 1) if t.get("stride_in_1x1", True) else (1, stride)
        self.path = nn.Sequential(
            conv(a, width, 1, stride=one, bias=False),
            conv(
                width,
                width,
                3,
                stride=three,
                groups=groups,
                bias=False,
                dilation=dilation,
                padding=dilation,
            ),
            conv(width, out, 1, bias=False),
        )
        self.shortcut = conv(a, out, 1, stride=stride, bias=False) if a != out else nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.path(x) + self.shortcut(x)


def residual_stage(stage: int, t: dict[str, Any]) -> Any:
    a, out = (64 if stage == 0 else 128 * 2**stage), 256 * 2**stage
    dilated = stage == 3 and t.get("dilated", False)
    stride = 1 if stage == 0 or dilated else 2
    dilation = 2 if dilated else 1
    blocks = [Block(a, stage, stride, t, dilation)]
    count = t.get("blocks", (3, 4, 6, 3))[stage]
    return nn.Sequential(*blocks, *[Block(out, stage, 1, t, dilation) for _ in range(count - 1)])


class Detector(nn.Module):
    """Convolutions and linear layers of a two-stage detector; norms are frozen, so no weights."""

    def __init__(
        self,
        trunk: dict[str, Any],
        neck: str = "fpn",
        rpn: bool = True,
        heads: Sequence[str] = ("box",),
        box_stages: int = 1,
        classes: int = 81,
        background_outputs: bool = True,
        positive_rois: int = 128,
    ) -> None:
        super().__init__()
        self.neck, self.positives, self.heads = neck, positive_rois, heads
        self.stem = nn.Sequential(
            conv(3, 64, 7, stride=2, bias=False), nn.MaxPool2d(3, 2, padding=1)
        )
        self.stages = nn.ModuleList(residual_stage(i, trunk) for i in range(4))
        if neck == "fpn":
            self.lateral = nn.ModuleList(conv(256 * 2**i, 256, 1) for i in range(4))
            self.output = nn.ModuleList(conv(256, 256) for _ in range(4))
        self.width = {"fpn": 256, "c4": 1024, "dc5": 2048}[neck]
        anchors = 3 if neck == "fpn" else 15
        self.rpn = nn.ModuleList(
            [
                conv(self.width, self.width),
                conv(self.width, anchors, 1),
                conv(self.width, 4 * anchors, 1),
            ]
            if rpn
            else []
        )
        if neck == "c4" and not heads:
            del self.stages[3]
        foreground = classes if background_outputs else classes - 1
        deltas = 4 if box_stages > 1 else 4 * foreground
        features = 2048 if neck == "c4" else 1024
        self.box = nn.ModuleList(
            nn.Sequential(*self.fully_connected(), Predictor(features, classes, deltas))
            for _ in range(box_stages if heads else 0)
        )
        self.mask = self.mask_head(foreground) if "mask" in heads else nn.Identity()
        self.keypoint = self.keypoint_head() if "keypoint" in heads else nn.Identity()

    def fully_connected(self) -> Iterator[Any]:
        if self.neck != "c4":
            for a, c in pairwise((49 * self.width, 1024, 1024)):
                yield nn.Linear(a, c)

    def mask_head(self, classes: int) -> Any:
        if self.neck == "c4":
            return nn.Sequential(nn.ConvTranspose2d(2048, 256, 2, 2), conv(256, classes, 1))
        convs = [conv(self.width, 256), *[conv(256, 256) for _ in range(3)]]
        return nn.Sequential(*convs, nn.ConvTranspose2d(256, 256, 2, 2), conv(256, classes, 1))

    def keypoint_head(self) -> Any:
        convs = [conv(256, 512), *[conv(512, 512) for _ in range(7)]]
        return nn.Sequential(*convs, nn.ConvTranspose2d(512, 17, 4, 2, padding=1))

    def levels(self, x: Any) -> list[Any]:
        x, features = self.stem(x), []
        for stage in self.stages[:3] if self.neck == "c4" else self.stages:
            x = stage(x)
            features.append(x)
        if self.neck != "fpn":
            return features[-1:]
        pairs = zip(self.output, self.lateral, features, strict=True)
        maps = [out(lateral(x)) for out, lateral, x in pairs]
        return [*maps, maps[-1][:, :, ::2, ::2]]

    def forward(self, x: Any) -> None:
        for level in self.levels(x):
            if self.rpn:
                hidden = self.rpn[0](level)
                self.rpn[1](hidden), self.rpn[2](hidden)
        for box in self.box:
            box(self.region_features())
        if "mask" in self.heads:
            c4 = self.neck == "c4"
            self.mask(real(self.positives, 2048, 7, 7) if c4 else self.pooled())
        if "keypoint" in self.heads:
            self.keypoint(self.pooled())

    def region_features(self) -> Any:
        if self.neck == "c4":
            return self.stages[3](real(512, 1024, 14, 14)).mean((2, 3))
        return real(512, 49 * self.width)

    def pooled(self) -> Any:
        return real(self.positives, self.width, 14, 14)


class Predictor(nn.Module):
    def __init__(self, features: int, classes: int, deltas: int) -> None:
        super().__init__()
        self.logits, self.deltas = nn.Linear(features, classes), nn.Linear(features, deltas)

    def forward(self, x: Any) -> None:
        self.logits(x), self.deltas(x)


class Retina(Detector):
    def __init__(
        self, trunk: dict[str, Any], extra_from_pyramid: bool = False, classes: int = 80
    ) -> None:
        super().__init__(trunk, rpn=False, heads=())
        del self.lateral[0], self.output[0]
        self.from_pyramid = extra_from_pyramid
        self.p6 = conv(256 if extra_from_pyramid else 2048, 256, stride=2)
        self.p7 = conv(256, 256, stride=2)
        self.towers = nn.ModuleList(
            nn.Sequential(*[conv(256, 256) for _ in range(4)], conv(256, 9 * n))
            for n in (classes, 4)
        )

    def forward(self, x: Any) -> None:
        x, features = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        pairs = zip(self.output, self.lateral, features[1:], strict=True)
        maps = [out(lateral(x)) for out, lateral, x in pairs]
        maps.append(self.p6(maps[-1] if self.from_pyramid else features[-1]))
        maps.append(self.p7(maps[-1]))
        for level in maps:
            for tower in self.towers:
                tower(level)


class Ssd(nn.Module):
    """SSD300 on a ResNet cut after conv4_x, batch norm counted by hand."""

    def __init__(self, *, deep: bool, norm: bool) -> None:
        super().__init__()
        widths = [1024 if deep else 256, 512, 512, 256, 256, 256]
        self.trunk = nn.Sequential(
            conv(3, 64, 7, stride=2, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, padding=1)
        )
        channels = 64
        for stage, count in enumerate((3, 4, 6)):
            for block in range(count):
                stride = 2 if stage == 1 and block == 0 else 1
                self.trunk.append(Normed(channels, 64 * 2**stage, stride, deep))
                channels = 64 * 2**stage * (4 if deep else 1)
        self.extras = nn.ModuleList()
        for i, ((a, c), narrow) in enumerate(
            zip(pairwise(widths), (256, 256, 128, 128, 128), strict=True)
        ):
            last = {"stride": 2, "padding": 1} if i < 3 else {"padding": 0}
            layers = [conv(a, narrow, 1, bias=not norm), conv(narrow, c, 3, bias=not norm, **last)]
            if norm:
                layers = [layers[0], nn.BatchNorm2d(narrow), layers[1], nn.BatchNorm2d(c)]
            self.extras.append(nn.Sequential(*layers))
        self.heads = nn.ModuleList(
            nn.ModuleList(conv(c, n * k) for k in (4, 81))
            for c, n in zip(widths, (4, 6, 6, 6, 4, 4), strict=True)
        )

    def forward(self, x: Any) -> list[int]:
        maps = [self.trunk(x)]
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        for heads, x in zip(self.heads, maps, strict=True):
            for head in heads:
                head(x)
        return [x.shape[-1] for x in maps]


class Normed(nn.Module):
    def __init__(self, a: int, planes: int, stride: int, deep: bool) -> None:
        super().__init__()
        out = planes * 4 if deep else planes
        if deep:
            convs = [
                conv(a, planes, 1, bias=False),
                conv(planes, planes, stride=stride, bias=False),
                conv(planes, out, 1, bias=False),
            ]
        else:
            convs = [conv(a, out, stride=stride, bias=False), conv(out, out, bias=False)]
        self.path = nn.Sequential(*convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(c.out_channels) for c in convs)
        self.short = nn.Sequential()
        if a != out or stride > 1:
            self.short.append(conv(a, out, 1, stride=stride, bias=False))
            self.short.append(nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        return self.path(x) + self.short(x)


def reference(name: str) -> Any:
    arguments = dict(CATALOG[name]["architecture"])
    arguments["trunk"] = dict(arguments.get("trunk", {}))
    with torch.device("meta"):
        if name.startswith("ssd300"):
            return Ssd(deep="resnet34" not in name, norm="resnet34" not in name)
        kind = Retina if CATALOG[name]["family"] == "retinanet" else Detector
        return kind(**arguments)


REFERENCES = [
    "ssd300",
    "ssd300-resnet34",
    *(
        name
        for name, entry in CATALOG.items()
        if entry["family"] in ("rcnn", "retinanet") and "parameters" in entry
    ),
]


@pytest.mark.parametrize("name", REFERENCES)
def test_parameters_equal_those_of_a_torch_network(name: str) -> None:
    expected = parameters(reference(name))
    assert graph(name).parameters == expected
    assert CATALOG[name]["parameters"] == expected


@pytest.mark.parametrize("name", REFERENCES)
def test_flops_equal_those_of_a_torch_network(name: str) -> None:
    model = reference(name).eval()
    size = CATALOG[name]["defaults"]["image_size"]
    with FlopCounterMode(display=False) as counter:
        model(real(1, 3, *size))
    flops = counter.get_total_flops()
    assert graph(name).forward_flops == pytest.approx(flops, rel=0.002)
    assert CATALOG[name]["forward_gflops"] == pytest.approx(flops / 1e9, rel=0.002)


# torchvision's weight cards: parameters of models with 91 classes (2 for keypoints)
@pytest.mark.parametrize(
    ("name", "changes", "published"),
    [
        ("mask-rcnn-r50-fpn", {"classes": 91}, 44401393),
        ("faster-rcnn-r50-fpn", {"classes": 91}, 41755286),
        ("keypointrcnn-r50-fpn", {"background_outputs": True}, 59137258),
        ("torchvision-retinanet-r50-fpn", {}, 34014999),
        ("ssd300-vgg16", {}, 35641826),
        ("yolov3", {}, 61949149),
        ("efficientdet-d0", {"redundant_bias": True}, 3880067),
    ],
)
def test_parameters_equal_published_ones(
    name: str, changes: dict[str, Any], published: int
) -> None:
    assert graph(name, **changes).parameters == published


@pytest.mark.parametrize(
    ("name", "gflops", "within"),
    [
        ("ssd300-vgg16", 2 * 34.858, 0.001),  # torchvision's weight card
        ("yolov3", 65.879, 0.001),  # printed by Darknet
        ("efficientdet-d0", 2 * 2.5, 0.02),  # arXiv 1911.09070, table 2, two digits
    ],
)
def test_flops_equal_published_ones(name: str, gflops: float, within: float) -> None:
    assert graph(name).forward_flops / 1e9 == pytest.approx(gflops, rel=within)


def test_ssd300_has_8732_default_boxes() -> None:
    with torch.device("meta"):
        sizes = Ssd(deep=True, norm=True).eval()(real(1, 3, 300, 300))
    boxes = sum(n * n * k for n, k in zip(sizes, (4, 6, 6, 6, 4, 4), strict=True))
    rows = [op.dims[0] for op in graph("ssd300", 2).operators if op.kind is Kind.LOSS]
    assert boxes == 8732
    assert 2 * boxes in rows


@pytest.mark.parametrize("name", [n for n, e in CATALOG.items() if e["family"] == "rcnn"])
def test_stem_and_res2_have_no_gradient_and_res3_passes_none_on(name: str) -> None:
    directions = [op.direction for op in graph(name).operators if op.kind is Kind.CONV]
    # stem, first block with its shortcut, repeated block: eight; the ninth is res3's first
    assert directions[:9] == [Direction.FORWARD] * 9
    assert directions[9] is Direction.WEIGHT_GRADIENT
    assert directions[10] is Direction.FORWARD


def test_a_second_image_costs_more_launches_only_in_proposals_and_matching() -> None:
    launches = [
        sum(op.kernels * op.count for op in graph("maskrcnn-r50-fpn", batch).operators)
        for batch in (1, 2, 3)
    ]
    assert launches[2] - launches[1] == launches[1] - launches[0] > 100
    assert launches[0] > 1000


def test_every_entry_builds_and_learns() -> None:
    for name in CATALOG:
        g = graph(name, 2)
        assert g.flops > 2 * g.forward_flops, name
        assert 0 < g.trainable_parameters <= g.parameters
