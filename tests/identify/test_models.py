"""Names people use for models lead to the catalog, and never to another size."""

from __future__ import annotations

import pytest

from predictor.errors import UnknownModelError
from predictor.graphs.catalog import entries, find_entry
from predictor.identify.keys import resolve_model


def test_every_name_and_alias_of_the_catalog_means_what_it_means_there() -> None:
    for entry in entries():
        for spelling in (entry.name, *entry.aliases):
            found = find_entry(spelling)
            assert found is not None
            assert resolve_model(spelling) == found.name


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("bert-large-uncased", "bert-large"),
        ("google-bert/bert-base-cased", "bert-base"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("llama-2-13b-chat-hf", "llama2-13b"),
        ("/data/models/bert-large-uncased/", "bert-large"),
        ("resnet50.a1_in1k", "resnet50"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("vit_b_16", "vit-base-16"),
        ("efficientnet_v2_s", "efficientnet-v2-s"),
        ("VGG16_BN", "vgg16-bn"),
        ("faster-rcnn_r50_fpn_1x_coco", "fasterrcnn-r50-fpn"),
    ],
)
def test_names_of_hubs_and_libraries_are_known(name: str, model: str) -> None:
    assert resolve_model(name) == model


@pytest.mark.parametrize(
    "name",
    [
        "opt-14b",
        "gpt3-1-3b",
        "llama-2-65b",
        "resnet50-v2",
        "bert",
        "",
        "/",
        "x" * 5000,
        "funnel-transformer-small",
        "checkpoint-500",
        "resnet",
        "efficientnet-b9",
        "model.safetensors",
        "mistral-7b; rm -rf /",
        "resnet50\x00",
    ],
)
def test_no_other_size_is_guessed(name: str) -> None:
    if name == "bert":
        assert resolve_model(name) == "bert-base"
        return
    with pytest.raises(UnknownModelError) as error:
        resolve_model(name)
    assert len(str(error.value)) < 500


def test_the_library_of_a_name_is_asked_first() -> None:
    assert resolve_model("alexnet", "torchvision:") == "alexnet-owt"
    assert resolve_model("alexnet") == "alexnet"
    assert resolve_model("resnet18", "torchvision:") == "resnet18"
