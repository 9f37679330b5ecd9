"""Segmentation and generative graphs agree with torch networks and with published figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import pytest
from references import catalog_of, forward_flops_of, graph_of_entry, parameters_of

from predictor.graphs.catalog import entry_of
from predictor.graphs.operator import Direction, Kind

torch = pytest.importorskip("torch")
nn = torch.nn

CATALOG = {
    name: entry
    for name, entry in catalog_of("segmentation", "generative").items()
    if "image_size" in entry["defaults"]
}
graph = partial(graph_of_entry, CATALOG, batch=1)


def crop_like(x: Any, like: Any) -> Any:
    edges = [(n - m) // 2 for n, m in zip(x.shape[2:], like.shape[2:], strict=True)]
    return x[(..., *[slice(e, e + m) for e, m in zip(edges, like.shape[2:], strict=True)])]


class PooledUnet(nn.Module):
    def __init__(
        self,
        widths: Sequence[int],
        bottleneck: int,
        padded: bool = False,
        halving: bool = False,
        dropout: bool = False,
        enlarge_kernel: int = 3,
        classes: int = 2,
    ) -> None:
        super().__init__()
        self.padding, self.kernel = int(padded), enlarge_kernel
        self.down = nn.ModuleList(
            self.double(a, c, c) for a, c in pairwise((1, *widths, bottleneck))
        )
        self.enlarge, self.up = nn.ModuleList(), nn.ModuleList()
        x = coarser = bottleneck
        for level, w in reversed(list(enumerate(widths))):
            self.enlarge.append(self.larger(x, coarser // 2))
            x, coarser = w // 2 if halving and level else w, w
            self.up.append(self.double(w + self.enlarge[-1].out_channels, w, x))
        self.out = nn.Conv2d(widths[0], classes, 1)

    def double(self, a: int, c: int, out: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(a, c, 3, padding=self.padding), nn.Conv2d(c, out, 3, padding=self.padding)
        )

    def larger(self, a: int, c: int) -> Any:
        if self.kernel == 2:
            return nn.Conv2d(a, c, 2)
        return nn.ConvTranspose2d(a, c, 3, 2, padding=1, output_padding=1)

    def forward(self, x: Any) -> Any:
        skips = []
        for block in self.down:
            x = block(nn.functional.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=True):
            if self.kernel == 2:
                x = nn.functional.pad(nn.functional.interpolate(x, scale_factor=2), (0, 1, 0, 1))
            x = enlarge(x)
            x = block(torch.cat([x, crop_like(skips.pop(), x)], 1))
        return self.out(x)


class StridedUnet(nn.Module):
    def __init__(
        self,
        widths: Sequence[int],
        in_channels: int,
        classes: int,
        rank: int,
        output_kernel: int = 1,
    ) -> None:
        super().__init__()
        self.conv = (nn.Conv2d, nn.Conv3d)[rank - 2]
        self.norm = (nn.InstanceNorm2d, nn.InstanceNorm3d)[rank - 2]
        transposed = (nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 2]
        self.down = nn.ModuleList(
            self.double(a, c, 2 if i else 1)
            for i, (a, c) in enumerate(pairwise((in_channels, *widths)))
        )
        pairs = list(pairwise(reversed(widths)))
        self.enlarge = nn.ModuleList(transposed(a, c, 2, 2) for a, c in pairs)
        self.up = nn.ModuleList(self.double(2 * c, c, 1) for _, c in pairs)
        self.out = self.conv(widths[0], classes, output_kernel, padding=output_kernel // 2)

    def double(self, a: int, c: int, stride: int) -> Any:
        layers = []
        for cin, step in ((a, stride), (c, 1)):
            layers += [self.conv(cin, c, 3, step, padding=1, bias=False), self.norm(c, affine=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        skips.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=True):
            x = block(torch.cat([enlarge(x), skips.pop()], 1))
        return self.out(x)


class Vnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = self.normed(nn.Conv3d(1, 16, 3, padding=1))
        self.down = nn.ModuleList(
            nn.Sequential(self.normed(nn.Conv3d(c, 2 * c, 2, 2)), self.three(2 * c))
            for c in (16, 32, 64)
        )
        self.enlarge = nn.ModuleList(
            self.normed(nn.ConvTranspose3d(a, c, 2, 2)) for a, c in ((128, 64), (128, 32), (64, 16))
        )
        self.up = nn.ModuleList([self.three(128), self.three(64)])
        self.out = nn.Conv3d(16, 3, 3, padding=1)

    def normed(self, conv: Any) -> Any:
        return nn.Sequential(conv, nn.BatchNorm3d(conv.out_channels))

    def three(self, c: int) -> Any:
        return nn.Sequential(*[self.normed(nn.Conv3d(c, c, 3, padding=1)) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        skips = [self.first(x)]
        for block in self.down:
            skips.append(block(skips[-1]))
        x = skips.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=False):
            x = block(torch.cat([enlarge(x), skips.pop()], 1))
        return self.out(self.enlarge[-1](x))


class Unet3Plus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths, repeats = (3, 64, 128, 256, 512, 512), (2, 2, 4, 4, 4)
        self.encoder = nn.ModuleList(
            nn.Sequential(*[nn.Conv2d(a if i == 0 else c, c, 3, padding=1) for i in range(n)])
            for (a, c), n in zip(pairwise(widths), repeats, strict=True)
        )
        self.branches, self.joins = nn.ModuleList(), nn.ModuleList()
        sources = list(widths[1:])
        for target in (3, 2, 1, 0):
            self.branches.append(nn.ModuleList(self.normed(c, 64) for c in sources))
            self.joins.append(self.normed(320, 320))
            sources[target] = 320
        self.out = nn.Conv2d(320, 2, 3, padding=1)

    def normed(self, a: int, c: int) -> Any:
        return nn.Sequential(nn.Conv2d(a, c, 3, padding=1), nn.BatchNorm2d(c))

    def forward(self, x: Any) -> Any:
        levels = []
        for block in self.encoder:
            x = block(nn.functional.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for target, branches, join in zip((3, 2, 1, 0), self.branches, self.joins, strict=True):
            size = levels[target].shape[2:]
            resized = [nn.functional.interpolate(x, size=size) for x in levels]
            parts = [branch(x) for branch, x in zip(branches, resized, strict=True)]
            levels[target] = join(torch.cat(parts, 1))
        return self.out(levels[0])


def reference(name: str) -> Any:
    arguments = dict(CATALOG[name]["architecture"])
    with torch.device("meta"):
        match CATALOG[name]["family"]:
            case "unet":
                return PooledUnet(**arguments)
            case "nnunet":
                rank = len(CATALOG[name]["defaults"]["image_size"])
                return StridedUnet(**arguments, rank=rank)
            case "vnet":
                return Vnet()
            case _:
                return Unet3Plus()


REFERENCES = [
    name for name, e in CATALOG.items() if e["group"] == "segmentation" and "parameters" in e
]


@pytest.mark.parametrize("name", REFERENCES)
def test_parameters_equal_those_of_a_torch_network(name: str) -> None:
    expected = parameters_of(lambda: reference(name))
    assert graph(name).parameters == expected
    assert CATALOG[name]["parameters"] == expected


@pytest.mark.parametrize("name", REFERENCES)
def test_flops_equal_those_of_a_torch_network(name: str) -> None:
    model = reference(name).eval()
    channels = next(model.parameters()).shape[1]
    image = torch.empty((1, channels, *CATALOG[name]["defaults"]["image_size"]), device="meta")
    flops = forward_flops_of(lambda: model, lambda: (image,))
    assert graph(name).forward_flops == pytest.approx(flops, rel=0.002)
    assert CATALOG[name]["forward_gflops"] == pytest.approx(flops / 1e9, rel=0.002)


@pytest.mark.parametrize(
    ("name", "changes", "published"),
    [
        # diffusers UNet2DConditionModel of stable-diffusion-2-base and stable-diffusion-v1-4
        ("stable-diffusion-v2-unet", {}, 865910724),
        ("stable-diffusion-v1-unet", {}, 859520964),
        # two generators of 11.378 M and two discriminators of 2.765 M (printed by its code)
        ("cyclegan", {}, 2 * (11378179 + 2764737)),
    ],
)
def test_parameters_equal_published_ones(
    name: str, changes: dict[str, Any], published: int
) -> None:
    assert graph(name, **changes).parameters == published
    assert CATALOG[name]["parameters"] == published


def test_unet_medical_turns_572_pixels_into_388() -> None:
    g = graph("unet-medical")
    last = next(op for op in g.operators if op.kind is Kind.LOSS)
    assert last.dims == (388 * 388, 2)


def test_deep_supervision_adds_outputs_and_nothing_else() -> None:
    plain, deep = graph("nnunet-3d"), graph("nnunet-3d", deep_supervision=2)
    assert deep.parameters - plain.parameters == 64 * 4 + 4 + 128 * 4 + 4
    losses = [sum(op.kind is Kind.LOSS for op in g.operators) for g in (plain, deep)]
    assert losses[1] == 3 * losses[0]


def test_frozen_text_encoder_adds_forward_work_only() -> None:
    with_text, without = graph("stable-diffusion-v2-latents"), graph("stable-diffusion-v2-unet")
    assert with_text.trainable_parameters == without.trainable_parameters
    extra = with_text.forward_flops - without.forward_flops
    assert extra > 0
    assert with_text.flops - without.flops == pytest.approx(extra)


@pytest.mark.parametrize("name", ["stabilityai/stable-diffusion-2-base", "stable-diffusion-v2"])
def test_autoencoder_runs_unless_latents_are_named(name: str) -> None:
    whole, latents = graph(entry_of(name).name), graph("stable-diffusion-v2-latents")
    assert whole.parameters - latents.parameters == 34163592  # diffusers' AutoencoderKL.encoder
    assert whole.trainable_parameters == latents.trainable_parameters
    extra = whole.forward_flops - latents.forward_flops
    assert whole.flops - latents.flops == pytest.approx(extra)
    assert extra / 1e12 == pytest.approx(1.1, rel=0.05)


def test_cyclegan_discriminators_learn_nothing_in_the_generators_update() -> None:
    g = graph("cyclegan")
    # the only convolutions to one channel are the discriminators' last: two learn, one does not
    last = [op.direction for op in g.operators if op.kind is Kind.CONV and op.dims[1] == 1]
    assert last.count(Direction.FORWARD) == 3
    assert last.count(Direction.WEIGHT_GRADIENT) == 2
    assert g.flops < 3 * g.forward_flops


@pytest.mark.parametrize("name", list(CATALOG))
def test_every_entry_scales_with_the_batch(name: str) -> None:
    one, three = graph(name, batch=1), graph(name, batch=3)
    assert three.parameters == one.parameters
    assert three.flops == pytest.approx(3 * one.flops, rel=0.02)
    assert one.flops > 1.8 * one.forward_flops  # frozen encoders run forward alone
    assert one.input_elements >= prod(CATALOG[name]["defaults"]["image_size"]) / 64
