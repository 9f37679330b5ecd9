"""Networks of timm and torchvision as they were recorded: figures of the libraries, any size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_laws import packed

from predictor.errors import GraphError
from predictor.graphs.builder import GraphBuilder
from predictor.graphs.catalog import entries, entry_of, find_entry, graph_of
from predictor.graphs.families import builder_of
from predictor.graphs.families.stored import SymbolicOperator, recorded_graph, unpacked
from predictor.graphs.operator import Direction, Graph, Kind, Workload
from profiles import recordings as manifest
from profiles.recordings import GRAPHS, recordings

RECORDED = [entry.name for entry in entries() if entry.family == "recorded"]
# Beside whole networks: windows, class tokens, recurrent layers, groups, experts of each sample.
SAMPLE = [
    name
    for name in (
        "timm:xcit_tiny_12_p16_224",
        "timm:cait_s24_224",
        "timm:swinv2_tiny_window8_256",
        "timm:crossvit_15_240",
        "timm:mixer_b16_224",
        "timm:nf_resnet50",
        "timm:dpn68b",
        "timm:mixnet_s",
        "timm:hrnet_w18",
        "densenet121",
        "torchvision:inception_v3",
    )
    if (found := find_entry(name)) and found.family == "recorded"
]


def graph(name: str, batch: int = 1, *, flash: bool = False, scale: float = 1) -> Graph:
    entry = entry_of(name)
    image = tuple(round(scale * side) for side in entry.image_size or ()) or None
    length = None if entry.seq_len is None else round(scale * entry.seq_len)
    work = Workload(batch, seq_len=length, image_size=image, flash_attention=flash)
    return graph_of(entry.name, (), work)


def forward(built: Graph, kind: Kind) -> dict[tuple[int, ...], float]:
    counts: dict[tuple[int, ...], float] = {}
    for op in built.operators:
        if op.kind is kind and op.direction is Direction.FORWARD:
            counts[op.dims] = counts.get(op.dims, 0) + op.count
    return counts


def test_parameters_are_exact_and_flops_within_a_percent_of_the_library() -> None:
    """Of what torch counted in two samples: networks of positions run once whatever the batch.

    tests/cli/test_data.py compares with what the entries state.
    """
    compared, wrong = 0, []
    for name in RECORDED:
        entry, two = entry_of(name), graph(name, 2)
        recording = recordings()[entry.architecture["graph"]]
        if entry.image_size == (recording.image_size,) * 2:
            compared += 1
            exact = two.parameters == recording.parameters
            if not exact or abs(two.forward_flops / 2e9 / recording.forward_gflops - 1) > 0.01:
                wrong.append(name)
    assert wrong == []
    assert compared > 400


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("timm:xcit_large_24_p8_384_dist", 188.93),
        ("timm:volo_d5_448", 295.91),
        ("timm:swinv2_large_window12to24_192to384_22kft1k", 196.74),
        ("timm:swinv2_cr_huge_384", 657.94),
        ("timm:vit_base_r50_s16_224", 98.66),
        ("timm:mixer_b16_224_miil", 59.88),
        ("timm:jx_nest_base", 67.72),
        ("timm:cait_m48_448", 356.46),
        ("timm:regnetz_d8_evos", 23.46),
        ("timm:gernet_s", 8.17),
        ("timm:repvgg_b2g4", 61.76),
        ("timm:mobilevitv2_200_in22ft1k", 18.45),
        ("timm:cspdarknet53", 27.64),
        ("timm:dla60_res2next", 17.03),
        ("timm:resnest269e", 110.93),
        ("timm:gluon_senet154", 115.09),
        ("timm:ecaresnet101d_pruned", 24.88),
        ("timm:hrnet_w48", 77.47),
        ("timm:tresnet_xl_448", 78.44),
    ],
)
def test_names_of_measurements_have_the_parameters_printed_there(
    name: str, millions: float
) -> None:
    assert graph(name).parameters / 1e6 == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("hiera_base_224", 51.52),
        ("maxvit_tiny_tf_224", 30.92),
        ("eva02_base_patch14_448", 87.12),
        ("convnextv2_femto", 5.23),
        ("nfnet_f0", 71.49),
        ("coatnet_0_rw_224", 27.44),
        ("caformer_s18", 26.34),
        ("efficientvit_b0", 3.41),
        ("pvt_v2_b2", 25.36),
        ("mobileone_s4", 14.95),
        ("focalnet_tiny_srf", 28.43),
        ("davit_tiny", 28.36),
        ("mvitv2_tiny", 24.17),
    ],
)
def test_parameters_are_those_of_the_cards_of_timm(name: str, millions: float) -> None:
    assert graph(name).parameters / 1e6 == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("deeplabv3-resnet50", 42_004_074, 178.722),
        ("deeplabv3-resnet101", 60_996_202, 258.743),
        ("fcn-resnet50", 35_322_218, 152.717),
        ("fcn-resnet101", 54_314_346, 232.738),
    ],
)
def test_segmentation_is_as_the_weight_cards_of_torchvision_say(
    name: str, parameters: int, multiply_adds: float
) -> None:
    found = graph(name, scale=520 / 480)
    assert found.parameters == parameters
    assert found.forward_flops / 2e9 == pytest.approx(multiply_adds, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "millions", "multiply_adds"),
    [  # arXiv 2301.00808, table 9, and timm's results for 384 and 518 pixels
        ("timm:convnextv2_tiny", 28.6, 4.47),
        ("timm:convnextv2_base", 88.7, 15.4),
        ("timm:convnextv2_large", 198.0, 34.4),
        ("timm:convnextv2_huge", 660.3, 337.96),
        ("timm:vit_small_patch14_dinov2", 22.06, 46.76),
    ],
)
def test_classifiers_of_2023_are_as_published(
    name: str, millions: float, multiply_adds: float
) -> None:
    found = graph(name)
    assert found.parameters / 1e6 == pytest.approx(millions, rel=0.002)
    assert found.forward_flops / 2e9 == pytest.approx(multiply_adds, rel=0.01)


def test_modern_bert_has_the_parameters_of_its_card() -> None:
    """149 and 395 million, of answerdotai's cards on Hugging Face."""
    for name, millions in (("ModernBERT-base", 149), ("ModernBERT-large", 395)):
        assert graph(f"answerdotai/{name}").parameters / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("resnetv2-50", 153),
        ("resnetv2-50d-evos", 210),
        ("nf-resnet50", 161),
        ("nasnetalarge", 1018),
        ("mixnet-s", 249),
        ("efficientnet-cc-b0-4e", 229),
    ],
)
def test_weight_tensors_are_as_many_as_timm_has(name: str, tensors: int) -> None:
    assert graph(name).parameter_tensors == tensors


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("yolov5s", 7235389),
        ("yolov5x", 86749405),
        ("yolov8n-seg", 3409968),
        ("yolov8n-pose", 3295470),
        ("yolov8n-cls", 2719288),
        ("yolo11n-seg", 2876848),
        ("yolo26n", 2572280),
        ("electra-small-discriminator", 13549314),
        ("gemma-4-31b-text", 30697345280),
        ("xlnet-base-cased", 117310466),
        ("clip-vit-b-32", 151277313),
        ("clip-vit-l-14", 427616513),
        ("whisper-large-v2", 1543304960),
        ("stable-diffusion-xl-unet", 2567463684),
        ("flux.1-dev", 11901408320),
    ],
)
def test_networks_of_other_libraries_have_the_parameters_that_are_published(
    name: str, parameters: int
) -> None:
    assert graph(name).parameters == parameters


def test_the_scores_of_clip_grow_with_the_square_of_the_pairs() -> None:
    def scored(batch: int) -> float:
        operators = graph("clip-vit-b-32", batch).operators
        return sum(o.flops for o in operators if o.dims == (batch, batch, 512, 1))

    assert scored(8) == 2 * 8 * 8 * 512
    assert scored(64) == 64 * scored(8)


def test_a_text_of_another_length_is_refused_where_no_law_of_it_was_found() -> None:
    with pytest.raises(GraphError, match="recorded with 448 tokens"):
        graph_of("whisper-tiny", (), Workload(2, seq_len=128))


@pytest.mark.parametrize("name", ["densenet121", "esm2-8m", "flux.1-dev"])
@pytest.mark.parametrize("cut", ["tensor_parallel", "context_parallel", "expert_parallel"])
def test_what_was_recorded_whole_is_not_split(name: str, cut: str) -> None:
    entry = entry_of(name)
    sizes = {"seq_len": entry.seq_len, "image_size": entry.image_size}
    with pytest.raises(GraphError, match=f"recorded whole: {cut} can only be 1"):
        graph_of(name, (), Workload(2, **sizes, **{cut: 2}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SAMPLE)
def test_work_grows_with_the_batch_and_the_image(name: str) -> None:
    one, eight = graph(name), graph(name, 8)
    assert 7 * one.forward_flops < eight.forward_flops <= 8 * one.forward_flops * (1 + 1e-9)
    assert eight.input_elements == 8 * one.input_elements
    assert (eight.parameters, len(eight.operators)) == (one.parameters, len(one.operators))
    assert graph(name, scale=2).forward_flops > 3 * one.forward_flops


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SAMPLE), st.integers(1, 4096), st.integers(4, 40))
def test_a_larger_batch_or_image_never_takes_less_work(name: str, batch: int, sides: int) -> None:
    def work(batch: int, side: int) -> float:
        found = graph_of(entry_of(name).name, (), Workload(batch, image_size=(side, side)))
        assert all(min(o.flops, o.reads, o.writes, *o.dims) >= 0 for o in found.operators)
        return found.flops

    side = 32 * sides
    assert work(batch, side) <= min(work(batch + 1, side), work(batch, side + 32))


@pytest.mark.parametrize("name", SAMPLE)
def test_backward_costs_twice_the_forward(name: str) -> None:
    built = graph(name, 8)
    assert built.flops == pytest.approx(3 * built.forward_flops, rel=0.06)


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("cait_s24_224", (1, 197, 48, 16)),
        ("pit_s_224", (50, 50, 48, 24)),
        ("vit_base_r50_s16_224", (197, 197, 64, 24)),
        ("twins_svt_small", (3136, 49, 32, 4)),
    ],
)
def test_attention_is_fused_or_divided_as_the_job_says(
    name: str, attention: tuple[int, ...]
) -> None:
    queries, keys, width, groups = attention
    fused, divided = graph(name, 2, flash=True), graph(name, 2)
    assert attention in forward(fused, Kind.ATTENTION)
    assert not forward(divided, Kind.ATTENTION)
    assert (queries, keys, width, groups) in forward(divided, Kind.BATCHED_GEMM)
    assert (queries, width, keys, groups) in forward(divided, Kind.BATCHED_GEMM)
    assert divided.forward_flops == pytest.approx(fused.forward_flops)


def test_a_rectangle_counts_as_the_square_of_its_pixels() -> None:
    def flops(*image: int) -> float:
        return graph_of("densenet121", (), Workload(1, image_size=image)).forward_flops

    assert flops(192, 256) == pytest.approx(flops(256, 192))
    assert flops(192, 192) < flops(192, 256) < flops(256, 256)


# --- the files -----------------------------------------------------------------------------------


def files() -> Iterator[str]:
    for path in GRAPHS.rglob("*.json.gz"):
        yield str(path.relative_to(GRAPHS)).removesuffix(".json.gz")


def test_every_file_is_in_the_manifest_with_its_hash() -> None:
    assert set(files()) == set(recordings())
    for name in recordings():
        assert recorded_graph(name).name == name


def test_a_file_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(iter(recordings()))
    (tmp_path / f"{name}.json.gz").parent.mkdir(parents=True)
    (tmp_path / f"{name}.json.gz").write_bytes(b"other")
    monkeypatch.setattr(manifest, "GRAPHS", tmp_path)
    recorded_graph.cache_clear()
    with pytest.raises(GraphError, match="not the one of the manifest"):
        recorded_graph(name)


def test_an_unknown_recording_is_an_error() -> None:
    with pytest.raises(GraphError, match="timm/nothing"):
        builder_of("recorded")(
            GraphBuilder(Workload(1, image_size=(224, 224))), graph="timm/nothing"
        )


def test_what_was_packed_is_read_again() -> None:
    law = ((2.0, 1, 2), (3.0, 0, 0))
    operator = SymbolicOperator(
        kind="gemm",
        direction="forward",
        dims=(((1.0, 1, 0),), ((8.0, 0, 0),), ((4.0, 0, 0),)),
        flops=law,
        reads=law,
        writes=law,
        kernels=((1.0, 0, 0),),
        count=2,
        origins=("mm",),
    )
    weights = dict.fromkeys(("parameters", "trainable", "tensors"), ((5.0, 0, 0),))
    found = unpacked("timm/mine", packed(32, True, weights, [operator, operator]))
    first, second = found.operators_at(3, (10, 10))
    assert first is second
    assert (first.dims, first.flops, first.count) == ((3, 8, 4), 2 * 3 * 100 + 3, 2)
    assert first.origins == ("mm",)


def test_reading_a_recording_needs_no_torch() -> None:
    code = (
        "import sys; from predictor.graphs.catalog import graph_of;"
        "from predictor.graphs.operator import Workload;"
        "graph_of('densenet121', (), Workload(1, image_size=(224, 224)));"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
