"""Where jobs are sent: to tensor cores of their precision, never against the user's word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clusters import JOB, cluster, gpu_node, submit

from slurm_plugin.cluster import GpuGres, SlurmNode
from slurm_plugin.constraints import parse
from slurm_plugin.protocol import HookAnswer

Decide = Any
BF16 = JOB.replace("amp", "bf16-mixed")
FP32 = JOB.replace("amp", "fp32")


def nodes_of(answer: HookAnswer, own: str | None = None) -> set[str]:
    """Nodes that the constraint of an answer, or the user's own, leaves."""
    text = answer.features or own
    if text is None:
        return {node.name for node in cluster().nodes}
    constraint = parse(text)
    assert constraint is not None
    return {node.name for node in cluster().nodes if constraint.matches(node.features)}


@pytest.mark.parametrize(
    ("comment", "nodes"),
    [
        (JOB, {"a1", "a2", "v1", "v2"}),
        (BF16, {"a1", "a2"}),
        (JOB.replace("amp", "tf32"), {"a1", "a2"}),
        (FP32, {"a1", "a2", "p1", "p2", "v1", "v2"}),
    ],
)
def test_a_job_gets_the_nodes_that_run_its_precision_on_tensor_cores(
    decider: Decide, comment: str, nodes: set[str]
) -> None:
    assert nodes_of(decider().decide(submit(comment=comment))) == nodes


def test_fp32_jobs_can_be_kept_off_tensor_cores(decider: Decide) -> None:
    answer = decider(placement={"fp32": "avoid_tensor_cores"}).decide(submit(comment=FP32))
    assert nodes_of(answer) == {"p1", "p2"}


def test_the_users_constraint_is_kept_and_joined(decider: Decide) -> None:
    answer = decider().decide(submit(features="gpu"))
    assert answer.features == "(gpu)&tensorcore" or answer.features == "gpu&tensorcore"
    either = decider().decide(submit(features="p100|v100"))
    assert nodes_of(either) == {"v1", "v2"}


@pytest.mark.parametrize(
    "fields",
    [
        {"features": "p100"},
        {"features": "[rack1*2&rack2*1]"},
        {"req_nodes": "p1"},
        {"tres_per_node": "gres:gpu:p100:4"},
        {"tres_per_job": "gres:gpu:v100:4", "tres_per_node": None},
        {"reservation": "class"},
        {"prefer": "p100"},
    ],
)
def test_nothing_is_written_against_the_users_own_choice(
    decider: Decide, fields: dict[str, Any]
) -> None:
    for method in ("constraint", "prefer", "gres"):
        answer = decider(placement={"method": method}).decide(submit(**fields))
        assert (answer.features, answer.prefer, answer.gres) == (None, None, None)


def test_soft_placement_prefers_and_still_covers_every_node(decider: Decide) -> None:
    soft = decider(placement={"method": "prefer"}).decide(submit())
    hard = decider().decide(submit())
    assert (soft.prefer, soft.features) == ("tensorcore", None)
    assert soft.time_limit is not None
    assert hard.time_limit is not None
    assert soft.time_limit > hard.time_limit


def test_typed_gres_keeps_the_count(decider: Decide) -> None:
    answer = decider(placement={"method": "gres"}).decide(submit(comment=BF16))
    assert answer.gres == "gpu:a100:4"
    per_job = submit(comment=BF16, tres_per_job="gres:gpu:4", tres_per_node=None)
    assert decider(placement={"method": "gres"}).decide(per_job).gres is None


def test_advice_says_what_to_add_and_writes_nothing(decider: Decide) -> None:
    answer = decider(placement={"mode": "advise"}).decide(submit())
    assert answer.features is None
    assert answer.message is not None
    assert '--constraint="tensorcore"' in answer.message


def test_a_job_that_would_not_find_enough_usable_nodes_is_left(decider: Decide) -> None:
    answer = decider().decide(submit(comment=BF16, min_nodes=3, max_nodes=3))
    assert answer.features is None
    drained = [
        replace(n, states=frozenset({"IDLE", "DRAIN"})) if n.name[0] == "a" else n
        for n in cluster().nodes
    ]
    assert decider(cluster(nodes=tuple(drained))).decide(submit(comment=BF16)).features is None


def test_without_the_named_feature_others_that_tell_the_nodes_apart_serve(decider: Decide) -> None:
    plain = tuple(
        replace(n, features=n.features - {"tensorcore", "bf16", "tf32"}) for n in cluster().nodes
    )
    answer = decider(cluster(nodes=plain)).decide(submit())
    assert nodes_of(answer) == {"a1", "a2", "v1", "v2"}


def test_a_feature_that_lies_is_not_used(decider: Decide) -> None:
    lying = tuple(replace(n, features=n.features | {"tensorcore"}) for n in cluster().nodes)
    answer = decider(cluster(nodes=lying)).decide(submit())
    assert nodes_of(answer) == {"a1", "a2", "v1", "v2"}


def test_where_every_node_fits_nothing_is_written(decider: Decide) -> None:
    view = cluster(nodes=(gpu_node("a1"), gpu_node("a2")))
    assert decider(view).decide(submit()).features is None


def test_nodes_that_cannot_hold_the_job_do_not_count(decider: Decide) -> None:
    small = SlurmNode(
        name="s1",
        partitions=("gpu",),
        features=frozenset({"t4"}),
        gpus=(GpuGres("t4", 1),),
        states=frozenset({"IDLE"}),
    )
    view = cluster(nodes=(gpu_node("a1"), small))
    answer = decider(view).decide(submit())
    assert answer.message is not None
    assert "4x a100, by physics:" in answer.message
