"""Novelty: each job is of the first tier whose every key was measured."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.estimate.residual.features import CATEGORIES, NUMBERS, Features, Vocabulary
from predictor.estimate.residual.novelty import (
    KEYS,
    KnownKeys,
    Tier,
    elsewhere,
    groups,
    random_folds,
)

MakeRows = Callable[..., list[Features]]


def row(gpus: int = 1, **changes: str) -> Features:
    words = {name: f"known-{name}" for name in CATEGORIES} | changes
    numbers = [log(gpus) if name == "gpus" else 0.0 for name in NUMBERS]
    return Features(tuple(words.values()), tuple(numbers), frozenset())


MEASURED = [row(), row(model="other-model", source="other-source"), row(gpus=4, model="many")]


@pytest.mark.parametrize(
    ("changes", "tier"),
    [
        ({}, Tier.RUN),
        ({"architecture": "new", "optimizer": "new"}, Tier.RUN),
        ({"precision": "new"}, Tier.CONFIGURATION),
        ({"variant": "new"}, Tier.CONFIGURATION),
        ({"gpu": "new"}, Tier.TABLE),
        ({"framework": "new"}, Tier.TABLE),
        ({"model": "other-model"}, Tier.TABLE),
        ({"source": "new"}, Tier.SITE),
        ({"source": "new", "gpu": "new", "precision": "new"}, Tier.SITE),
        ({"model": "new"}, Tier.MODEL),
        ({"model": "new", "source": "new"}, Tier.MODEL),
    ],
)
def test_a_job_is_as_new_as_its_newest_key(changes: dict[str, str], tier: Tier) -> None:
    vocabulary = Vocabulary.of(MEASURED)
    known = KnownKeys(vocabulary.encode(MEASURED))
    assert known.tiers(vocabulary.encode([row(**changes)])) == [tier]


@pytest.mark.parametrize(
    ("model", "gpus", "tier"),
    [("known-model", 8, Tier.COUNT), ("many", 8, Tier.RUN), ("many", 1, Tier.COUNT)],
)
def test_one_gpu_says_less_of_several(model: str, gpus: int, tier: Tier) -> None:
    vocabulary = Vocabulary.of(MEASURED)
    known = KnownKeys(vocabulary.encode(MEASURED))
    assert known.tiers(vocabulary.encode([row(gpus, model=model)])) == [tier]


def test_what_was_measured_is_no_news(random_rows: MakeRows) -> None:
    rows = random_rows(100)
    vocabulary = Vocabulary.of(rows)
    table = vocabulary.encode(rows)
    assert set(KnownKeys(table).tiers(table)) == {Tier.RUN}


def test_a_tier_asks_for_no_more_than_the_one_before() -> None:
    asked = [{name for key in keys for name in key} for keys in KEYS.values()]
    assert all(later < earlier for earlier, later in pairwise(asked))


def test_every_tier_says_what_it_means() -> None:
    assert len({tier.meaning for tier in Tier}) == len(Tier)


def test_groups_are_a_partition_by_key(random_rows: MakeRows, vocabulary: Vocabulary) -> None:
    rows = random_rows(120)
    parts = groups(vocabulary.encode(rows), ("model", "gpu"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(120))
    model, gpu = CATEGORIES.index("model"), CATEGORIES.index("gpu")
    keys = [{(rows[i].categories[model], rows[i].categories[gpu]) for i in part} for part in parts]
    assert all(len(key) == 1 for key in keys)
    assert len(set.union(*keys)) == len(parts)


def test_elsewhere_is_seen_under_another_value() -> None:
    rows = [
        row(model="both", source="a"),
        row(model="both", source="b"),
        row(model="once", source="a"),
        row(model="once", source="a"),
    ]
    table = Vocabulary.of(rows).encode(rows)
    assert elsewhere(table, ("model",), ("source",)).tolist() == [True, True, False, False]


@given(n=st.integers(5, 300), folds=st.integers(2, 5), seed=st.integers(0, 100))
def test_random_folds_are_a_partition_of_like_sizes(n: int, folds: int, seed: int) -> None:
    parts = random_folds(n, folds, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    again = random_folds(n, folds, seed)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
