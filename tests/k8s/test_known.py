"""What is kept of jobs changes no answer, and lets go of what the cluster no longer is."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import ref

import pytest
from gpu_jobs import BF16, FP32, MIXED, NODES, V100, job
from hypothesis import given
from hypothesis import strategies as st

from k8s_extender.config import Config
from k8s_extender.decide import Decider
from k8s_extender.records import GpuNode, PodJob
from k8s_extender.server.known import Brain
from k8s_extender.server.loading import Loader
from k8s_extender.server.metrics import ExtenderMetrics
from k8s_extender.server.state import State
from k8s_extender.server.upkeep import Upkeep
from k8s_extender.wire import prioritize_answer
from predictor.estimate.core import Predictor
from predictor.estimate.fitting import Fitted
from predictor.identify.rules import Rules

JOBS = tuple(job(text) for text in (MIXED, FP32, BF16, ""))


class Table(dict[str, GpuNode]):
    """A table that tells when it is gone."""


def unread(pod: Any, config: Config, rules: Rules) -> PodJob | None:
    raise AssertionError("no pod is read here")


def brain_of(fitted: Fitted, tables: list[Table]) -> Brain:
    return Brain(fitted.predictor, Config(), lambda: tables[-1], rules=Rules(), job_of=unread)


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> tuple[Brain, list[Table]]:
    tables = [Table(NODES)]
    return brain_of(fitted, tables), tables


@given(
    st.lists(
        st.tuples(
            st.sampled_from(JOBS),
            st.lists(st.sampled_from([*NODES, "unheard-of"]), max_size=8),
            st.sets(st.sampled_from(sorted(NODES))) | st.none(),
        ),
        max_size=8,
    )
)
def test_answers_are_those_of_a_decider_that_keeps_nothing(
    known: tuple[Brain, list[Table]], asked: list[tuple[PodJob, list[str], set[str] | None]]
) -> None:
    brain, tables = known
    for one, names, gone in asked:
        if gone is not None:
            tables[:] = [Table({n: each for n, each in NODES.items() if n not in gone})]
        fresh = Decider(brain.predictor, brain.config, lambda: tables[-1])
        assert brain.filter(one, names) == fresh.filter(one, names)
        scores = fresh.prioritize(one, names)
        sent = json.loads(prioritize_answer(names, brain.host_scores(one, names)))
        assert {each["Host"]: each["Score"] for each in sent} == scores


def test_a_node_that_comes_is_judged_where_all_others_passed(fitted: Fitted) -> None:
    tables = [Table({name: NODES[name] for name in ("a1", "a2", "cpu1")})]
    brain, bf16 = brain_of(fitted, tables), job(BF16)
    for _ in range(2):
        assert brain.filter(bf16, ["a1", "a2"]).passed == ["a1", "a2"]
    tables.append(Table({**tables[-1], "v9": GpuNode("v9", V100)}))
    assert brain.filter(bf16, ["a1", "v9"]).passed == ["a1"]


def test_tables_that_have_changed_are_let_go(fitted: Fitted) -> None:
    tables = [Table(NODES)]
    brain = brain_of(fitted, tables)
    former = []
    for batch in range(1, 13):
        one = job(f"model=resnet50 precision=amp batch={batch} epochs=1")
        brain.filter(one, list(NODES))
        brain.host_scores(one, list(NODES))
        former.append(ref(tables[-1]))
        tables[:] = [Table(NODES)]
    assert sum(table() is not None for table in former) <= 1


class NoNodes:
    """A table that is whole and empty."""

    table: Mapping[str, GpuNode] = {}
    synced, age_s, error = True, 0.0, ""

    def start(self) -> None: ...

    def use(self, config: Config) -> None: ...

    def stop(self) -> None: ...


class Anew(Loader):
    """Loads another predictor each time, as after a change of the version."""

    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted

    def load(self, config: Config) -> Brain:
        one = self._fitted.predictor
        another = Predictor(one.steps, one.residual, one.intervals)
        return Brain(another, config, dict, rules=Rules(), job_of=unread)


@pytest.fixture
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_a_predictor_that_is_replaced_is_let_go(fitted: Fitted) -> None:
    state = State(Config(), NoNodes())
    upkeep = Upkeep(state, Anew(fitted), ExtenderMetrics(), None)
    asyncio.run(upkeep.load())
    assert state.brain is not None
    former = ref(state.brain.predictor)
    assert former() is not None
    state.brain = None
    asyncio.run(upkeep.load())
    assert former() is None
