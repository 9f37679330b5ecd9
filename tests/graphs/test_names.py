"""Names in the wild mean the network they mean, or nothing; never silently another one."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import GraphError, UnknownModelError
from predictor.graphs import names
from predictor.graphs.catalog import entries, entry_of, find_entry, graph_of
from predictor.graphs.names import MAX_NAME, Meaning, Pattern, naming, nearest, normal
from predictor.graphs.operator import Workload
from profiles.tables import measurements

CORPUS = yaml.load(Path(__file__).with_name("names_in_the_wild.yaml").read_text(), yaml.CSafeLoader)
NOTHING: list[str] = CORPUS.pop("nothing")
MEANT = [
    (name, model) for group in CORPUS.values() for model, known in group.items() for name in known
]


def test_the_corpus_is_large() -> None:
    assert len({name for name, _ in MEANT}) + len(set(NOTHING)) >= 400


def test_a_name_in_the_wild_means_its_network() -> None:
    found = [(name, model, find_entry(name)) for name, model in MEANT]
    wrong = [(name, one and one.name) for name, model, one in found if not one or one.name != model]
    assert wrong == []


def test_what_the_catalog_lacks_is_not_taken_for_another_network() -> None:
    assert {name: found.name for name in NOTHING if (found := find_entry(name))} == {}


def test_every_name_and_alias_means_its_own_entry() -> None:
    wrong = {
        spelling: entry.name
        for entry in entries()
        for spelling in (entry.name, *entry.aliases)
        if find_entry(spelling) != entry
    }
    assert wrong == {}


def test_every_model_of_the_measurements_is_known() -> None:
    unknown = {row["model"] for row in measurements() if find_entry(row["model"]) is None}
    assert unknown == set()


def test_case_and_separators_do_not_matter() -> None:
    for entry in entries():
        words = entry.name.replace("-", " ").replace("_", " ").upper()
        found = find_entry(words)
        assert found in (entry, None), entry.name
        assert found is not None or "." in entry.name or "/" in entry.name, entry.name


@given(st.text(max_size=2 * MAX_NAME))
def test_any_text_is_an_entry_or_nothing_and_stays_what_it_is(text: str) -> None:
    found = find_entry(text)
    if found is not None:
        again = find_entry(found.name)
        assert again is not None
        assert again.name == found.name
    assert find_entry(normal(text)) == found or found is not None


def test_a_size_in_the_name_is_the_size_of_the_graph() -> None:
    entry = entry_of("google/bert_uncased_L-4_H-512_A-8")
    built = graph_of(entry.name, (), Workload(1, seq_len=128))
    known = graph_of(
        "bert-base", (("heads", "8"), ("hidden", "512"), ("layers", "4")), Workload(1, seq_len=128)
    )
    assert built.parameters == known.parameters == pytest.approx(29.1e6, rel=0.01)
    assert "layers=4" in entry.source
    assert entry.parameters is None


def test_lora_of_a_decoder_trains_its_adapters_only() -> None:
    built = graph_of(entry_of("mistral-7b-lora").name, (), Workload(1, seq_len=64))
    assert built.trainable_parameters < 0.01 * built.parameters


def test_an_image_size_in_the_name_is_the_default_of_the_entry() -> None:
    assert entry_of("yolov3-608").image_size == (608, 608)
    assert entry_of("facebook/DiT-XL-2-512").image_size == (512, 512)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("minigo", "plays games"),
        ("ResNet50V2", "pre-activation"),
        ("ssd", "could be"),
        ("llama", "family of sizes"),
        ("resnet51", "not in the catalog"),
    ],
)
def test_a_refusal_says_why_and_what_is_near(name: str, said: str) -> None:
    with pytest.raises(UnknownModelError, match=said):
        entry_of(name)


def test_near_names_are_entries() -> None:
    assert set(nearest("resnet51")) <= {entry.name for entry in entries()}
    assert "resnet50" in nearest("resnt50")
    assert nearest("resnet5")[0] == "resnet50"  # not an entry with an alias that holds its name
    assert "dinov2-base" in nearest("dinov2")


def test_a_library_is_looked_in_first() -> None:
    assert entry_of("alexnet", "torchvision:").name == "alexnet-owt"
    assert entry_of("alexnet").name == "alexnet"
    assert entry_of("resnet18", "torchvision:").name == "resnet18"


def test_a_name_made_to_be_slow_is_not() -> None:
    def find_s(*names: str) -> float:
        started = time.process_time()
        for name in names:
            find_entry(name)
        return time.process_time() - started

    made = ("-a" * 60, "mask-rcnn-r50-fpn" + "-ms" * 35, "a.a" * 40, "llama" * 20 + "-lora")
    assert find_s(*made) < 20 * max(find_s(*(f"my-net-{n}" for n in range(20))), 0.005)


def test_every_pattern_serves_a_name_of_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[str] = set()
    meant = names._meant

    def note(pattern: Pattern, match: re.Match[str]) -> Meaning | None:
        found = meant(pattern, match)
        if found is not None:
            served.add(pattern.match.pattern)
        return found

    monkeypatch.setattr(names, "_meant", note)
    for name, _ in MEANT:
        names.meaning_of.__wrapped__(name)
    assert [p.match.pattern for p in naming().patterns if p.match.pattern not in served] == []


def test_every_entry_says_where_its_facts_are_from() -> None:
    assert [entry.name for entry in entries() if not entry.source] == []


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("unet3plus", {"image_size": (8, 8)}),
        ("ssd300", {"image_size": (32, 32)}),
        ("wav2vec2-base-plain", {"seq_len": 64}),
    ],
)
def test_samples_too_small_for_a_network_are_told(name: str, sizes: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match="too small for the layers"):
        graph_of(name, (), Workload(2, **sizes))
