"""On which nodes a pod may land, as the scheduler decides it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from k8s_configs import config_of, pod_job
from mutants import mutants

from k8s_extender.decide import selects

LABELS = {"gpu": "a100", "zone": "z1", "gpus": "8", "empty": ""}


def selected(
    terms: Any = None, selector: dict[str, str] | None = None, name: str | None = None
) -> bool:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec: dict[str, Any] = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}],
        "nodeSelector": selector or {},
        "affinity": {} if terms is None else {"nodeAffinity": required},
    }
    job = pod_job({"metadata": {}, "spec": spec}, config_of({}))
    assert job is not None
    return selects(job, LABELS, name)


def term(*requirements: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in requirements]
    }


def test_a_pod_without_wishes_may_land_anywhere() -> None:
    assert selected()


def test_the_node_selector_must_match_in_full() -> None:
    assert selected(selector={"gpu": "a100", "zone": "z1"})
    assert not selected(selector={"gpu": "a100", "zone": "z2"})
    assert not selected(selector={"other": ""})


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (("gpu", "In", ["v100", "a100"]), True),
        (("gpu", "In", ["v100"]), False),
        (("other", "In", ["a"]), False),
        (("gpu", "NotIn", ["v100"]), True),
        (("gpu", "NotIn", ["a100"]), False),
        (("other", "NotIn", ["a"]), True),
        (("empty", "Exists", []), True),
        (("other", "Exists", []), False),
        (("gpu", "DoesNotExist", []), False),
        (("other", "DoesNotExist", []), True),
        (("gpus", "Gt", ["4"]), True),
        (("gpus", "Gt", ["8"]), False),
        (("gpus", "Lt", ["16"]), True),
        (("gpus", "Lt", ["8"]), False),
        (("gpu", "Gt", ["4"]), False),
        (("other", "Lt", ["4"]), False),
        (("gpus", "Gt", ["4", "5"]), False),
        (("gpus", "Gt", ["x"]), False),
        (("gpu", "Like", ["a100"]), False),
    ],
)
def test_requirements_hold_as_in_kubernetes(
    requirement: tuple[str, str, list[str]], met: bool
) -> None:
    assert selected([term(requirement)]) is met


def test_requirements_of_a_term_hold_together_and_terms_one_by_one() -> None:
    here, there = ("gpu", "In", ["a100"]), ("zone", "In", ["z2"])
    assert not selected([term(here, there)])
    assert selected([term(there), term(here)])


def test_selector_and_affinity_hold_together() -> None:
    assert not selected([term(("gpu", "In", ["a100"]))], selector={"zone": "z2"})


@pytest.mark.parametrize("terms", [[], [{}], [{"matchExpressions": []}], [None], "x"])
def test_terms_without_requirements_match_no_node(terms: Any) -> None:
    assert not selected(terms)


def test_a_term_about_the_nodes_name() -> None:
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert selected([named], name="n1")
    assert not selected([named], name="n2")
    assert selected([named])
    assert not selected([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["y"]}]}])


@given(
    mutants([[term(("gpu", "In", ["a100"])), term(("gpus", "Gt", ["4"]))]]),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
)
def test_no_terms_make_it_raise(terms: Any, selector: dict[str, str]) -> None:
    assert selected(terms, selector) in (True, False)
