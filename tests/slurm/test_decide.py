"""What the daemon answers: the limit, the nodes, and what it tells the user."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from clusters import FEATURES, JOB, cluster, gpu_node, submit

from predictor.identify.grammar import parse_text
from predictor.job.training_job import TrainingJob
from predictor.service.process import CpuBoundError, TimeBound, time_bound
from slurm_plugin.ahead import QueueAhead
from slurm_plugin.cluster import Association, GpuGres, Partition, Settings, SlurmJob, WallLimits
from slurm_plugin.decide import SlurmDecider
from slurm_plugin.estimate import MadeBefore
from slurm_plugin.mark import MAX_CHARS, JobMark, parse_mark
from slurm_plugin.order import BASE, SINCE_S
from slurm_plugin.protocol import HookAnswer, PartitionRequest

Decide = Any


def seconds(decider: SlurmDecider, gpu: str, quantile: float, **changes: Any) -> float:
    """Time of all steps of JOB on one GPU type, straight from the predictor."""
    job = TrainingJob(
        model="resnet50",
        precision="mixed_fp16_fp32",
        gpu=gpu,
        gpus=4,
        batch_size=256,
        epochs=90,  # type: ignore[arg-type]
        dataset_size=1281167,
    ).but(**changes)
    found = decider.predictor.predict(job).total_quantile_s(quantile)
    assert found is not None
    return found


def slurm_job(state: str, gpus: int, limit_min: int, **fields: Any) -> SlurmJob:
    """A job of the cluster's queue; one that runs has just started."""
    start_s = 1.8e9 if state == "RUNNING" else None
    named = SlurmJob(job_id=1, user="u2", name="j", state=state, partitions=("gpu",), gpus=gpus)
    nodes = -(-gpus // 4)
    return replace(named, limit_min=limit_min, start_s=start_s, nodes=nodes, **fields)


def filled(seconds_: float) -> int:
    """Minutes of the default policy: 2 % for checkpoints, 10 minutes to start, steps of 5."""
    return math.ceil((seconds_ * 1.02 / 60 + 10) / 5) * 5


def test_a_job_without_a_limit_gets_the_quantile_plus_allowances(decider: Decide) -> None:
    decide = decider()
    answer = decide.decide(submit())
    assert answer.time_limit == filled(seconds(decide, "v100", 0.95))
    assert answer.message is not None
    assert answer.message.startswith("resnet50, mixed_fp16_fp32, 4x a100|v100, by physics: ")
    assert "time limit set to" in answer.message


def test_the_limit_covers_the_slowest_gpu_the_job_may_land_on(decider: Decide) -> None:
    decide = decider(placement={"mode": "off"})
    assert decide.decide(submit()).time_limit == min(2880, filled(seconds(decide, "p100", 0.95)))
    typed = decide.decide(submit(tres_per_node="gres:gpu:a100:4"))
    assert typed.time_limit == filled(seconds(decide, "a100", 0.95))


def test_an_explicit_limit_stays_as_it_is(decider: Decide) -> None:
    for minutes in (1.0, 600.0, math.inf):
        answer = decider().decide(submit(time_limit=minutes))
        assert answer.time_limit is None
        assert answer.time_min is None


def test_an_explicit_limit_far_off_is_remarked_on(decider: Decide) -> None:
    low = decider().decide(submit(time_limit=30.0)).message
    assert low is not None
    assert "expected to reach its limit; your limit of 0:30:00 is probably too short" in low
    high = decider().decide(submit(time_limit=20000.0)).message
    assert high is not None
    assert "may start earlier" in high
    strict = decider(limits={"evidence": {"max_interval_ratio": 1.01}})
    thin = strict.decide(submit(time_limit=30.0)).message
    assert thin is not None
    assert "your limit of 0:30:00 may be too short: the 95% quantile is" in thin
    quiet = decider(limits={"warn_explicit": False}).decide(submit(time_limit=30.0)).message
    assert quiet is not None
    assert "your limit" not in quiet


def test_no_limit_rests_on_a_comment_that_the_script_contradicts(decider: Decide) -> None:
    script = "#!/bin/bash\npython train.py --model resnet50 --batch-size 256 --epochs 300 --amp\n"
    answer = decider().decide(submit(script=script))
    assert answer.time_limit is None
    assert answer.message is not None
    assert "the script puts the epochs in doubt" in answer.message
    assert decider().decide(submit()).time_limit is not None


@pytest.mark.parametrize(("starts", "served"), [(8, False), (2, False), (4, True)])
def test_no_limit_rests_on_another_number_of_processes_than_of_gpus(
    decider: Decide, starts: int, served: bool
) -> None:
    """However the GPUs are asked for: on the command line nothing of the script contradicts it."""
    script = f"#!/bin/bash\ntorchrun --nproc_per_node={starts} train.py\n"
    answer = decider().decide(submit(script=script))
    assert (answer.time_limit is not None) == served
    assert (f"its launchers start {starts} processes" in (answer.message or "")) != served
    both = submit(script=script, tres_per_node="gres:gpu:4", min_nodes=2, max_nodes=2)
    assert (decider().decide(both).time_limit is not None) == (starts != 2)


def test_max_time_of_the_partition_bounds_the_limit_and_the_user_is_told(decider: Decide) -> None:
    short = submit(partition="short", partitions=(PartitionRequest("short", 10, 30),))
    answer = decider().decide(short)
    assert answer.time_limit == 30
    assert answer.message is not None
    assert "predicted to hit it" in answer.message


def test_a_partition_without_bound_leaves_the_prediction(decider: Decide) -> None:
    decide = decider()
    answer = decide.decide(
        submit(
            partition="nolimit",
            partitions=(PartitionRequest("nolimit", None, None),),
            comment=JOB.replace("90", "9000"),
        )
    )
    assert answer.time_limit == filled(seconds(decide, "v100", 0.95, epochs=9000))


@pytest.mark.parametrize(("enforced", "limit"), [("NO", 240), ("ANY", 240), ("ALL", 30)])
def test_with_several_partitions_the_widest_bounds_unless_all_are_enforced(
    decider: Decide, enforced: str, limit: int
) -> None:
    view = cluster()
    view = replace(view, settings=replace(view.settings, enforce_part_limits=enforced))
    several = submit(
        partition="long,short",
        partitions=(PartitionRequest("gpu", None, 240), PartitionRequest("short", 10, 30)),
        comment=JOB.replace("90", "9000"),
    )
    assert decider(view).decide(several).time_limit == limit


@pytest.mark.parametrize(
    ("walls", "limit"),
    [
        (WallLimits(qos={"normal": 100}), 100),
        (WallLimits(associations=(Association(account="lab1", user="u1", max_wall_min=90),)), 90),
        (WallLimits(associations=(Association(account="lab2", user="u1", max_wall_min=90),)), None),
        (WallLimits(qos={"night": 80, "normal": 70}), 70),
    ],
)
def test_limits_of_qos_and_association_bound_the_limit(
    decider: Decide, walls: WallLimits, limit: int | None
) -> None:
    view = cluster(walls=walls)
    answer = decider(view).decide(submit(qos="normal"))
    if limit is None:
        assert answer.time_limit == decider().decide(submit()).time_limit
    else:
        assert answer.time_limit == limit


def test_the_qos_of_a_partition_goes_before_that_of_the_job(decider: Decide) -> None:
    part = Partition(name="gpu", default=True, max_min=2880, qos="wide")
    view = cluster(partitions=(part,), walls=WallLimits(qos={"wide": 120, "normal": 60}))
    assert decider(view).decide(submit(qos="normal")).time_limit == 120


def test_floor_and_cap_of_the_policy_hold(decider: Decide) -> None:
    short = JOB.replace("epochs=90", "steps=1")
    assert decider(limits={"floor_min": 45}).decide(submit(comment=short)).time_limit == 45
    bounds = {"partitions": {"gpu": {"floor_min": 60, "cap_min": 70}}}
    assert decider(limits=bounds).decide(submit(comment=short)).time_limit == 60
    assert decider(limits=bounds).decide(submit()).time_limit == 70


def lenient(over_min: float | None) -> Any:
    part = Partition(name="gpu", default=True, default_min=1440, max_min=2880, over_min=over_min)
    return cluster(partitions=(part,))


@pytest.mark.parametrize(
    ("over_min", "own_min", "expected"),
    [
        (None, 6000.0, None),  # nothing reaches past the limit
        (600.0, 6000.0, None),  # the user's limit less 600 is too near to it
        (4000.0, 6000.0, 2000),  # so long that 4000 min more reach what the user asked for
        (math.inf, math.inf, "estimate"),
        (4000.0, math.inf, None),
    ],
)
def test_time_min_is_set_only_where_over_time_reaches_the_whole_limit(
    decider: Decide, over_min: float | None, own_min: float, expected: Any
) -> None:
    view = lenient(over_min)
    decide = decider(view, soft_time={"mode": "apply"})
    answer = decide.decide(submit(time_limit=own_min))
    assert answer.time_limit is None
    if expected == "estimate":
        assert answer.time_min is not None
        assert answer.time_min < 1440  # the default of the partition
        mark = parse_mark(answer.admin_comment)
        assert mark is not None
        assert (mark.soft, mark.cap) == (answer.time_min, math.inf)
    else:
        assert answer.time_min == expected
    advised = decider(view, soft_time={"mode": "advise"}).decide(submit(time_limit=own_min))
    assert advised.time_min is None
    assert ("backfill would plan it" in (advised.message or "")) == (expected is not None)
    assert decider(view).decide(submit(time_limit=own_min)).time_min is None


def test_soft_time_leaves_a_job_that_asks_for_a_signal_or_has_a_time_min(decider: Decide) -> None:
    decide = decider(lenient(math.inf), soft_time={"mode": "apply"})
    assert decide.decide(submit(time_limit=6000.0)).time_min is not None
    assert decide.decide(submit(time_limit=6000.0, time_min=5.0)).time_min is None
    script = "#!/bin/sh\n#SBATCH --signal=B:USR1@60\npython train.py\n"
    assert decide.decide(submit(time_limit=6000.0, script=script)).time_min is None


def test_a_limit_far_too_long_is_told_with_what_an_honest_one_saves(decider: Decide) -> None:
    decide = decider()
    soon, late = (slurm_job("RUNNING", 4, m, node_names=(n,)) for m, n in ((10, "a1"), (490, "a2")))
    queue = (soon, late, slurm_job("PENDING", 8, 60))
    view = cluster(nodes=(gpu_node("a1"), gpu_node("a2")), queue=queue)
    decide.look(view, QueueAhead.of(view))
    told = decide.decide(submit(time_limit=20000.0)).message
    assert told is not None
    assert "would do and may start about 9 h 00 min earlier" in told


def test_a_time_min_of_the_user_is_never_above_our_limit(decider: Decide) -> None:
    answer = decider().decide(submit(comment=JOB.replace("epochs=90", "steps=1"), time_min=300.0))
    assert answer.time_limit == 300


def test_warn_mode_says_the_limit_and_sets_none(decider: Decide) -> None:
    answer = decider(limits={"mode": "warn"}).decide(submit())
    assert answer.time_limit is None
    assert answer.message is not None
    assert "would do" in answer.message


def test_limits_can_be_off_and_placement_still_work(decider: Decide) -> None:
    answer = decider(limits={"mode": "off"}).decide(submit())
    assert (answer.time_limit, answer.features) == (None, "tensorcore")


def test_thin_evidence_leaves_the_default_and_says_so(decider: Decide) -> None:
    strict = decider(limits={"evidence": {"max_interval_ratio": 1.01}})
    answer = strict.decide(submit())
    assert answer.time_limit is None
    assert answer.message is not None
    assert "no limit is set" in answer.message


def test_an_unknown_model_keeps_the_default_and_the_user_is_told(decider: Decide) -> None:
    answer = decider().decide(submit(comment=JOB.replace("resnet50", "resnet5o-mine")))
    assert answer.time_limit is None
    assert answer.message is not None
    assert answer.message.count("resnet5o-mine") == 1
    assert "reason=unknown-model" in answer.log


@pytest.mark.parametrize(
    "command",
    [
        "python my_unet3d.py --data /scratch/ct --epochs 40 --bs 16 --lr 3e-4",
        "python -m torch.distributed.run --nproc_per_node=gpu weather.py --config era5.yaml",
        "srun --het-group=0 python learner.py : --het-group=1 python actor.py",
    ],
)
def test_flags_of_an_own_network_are_no_business_of_ours(decider: Decide, command: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH hetjob\n#SBATCH -n4\n{command}\n"
    answer = decider().decide(submit(comment=None, script=script))
    assert answer.message == (
        "no earlier runs to go by; an estimate comes from "
        "`#PT model=... batch=... epochs=...` in the script"
    )
    typed = script.replace(command, f"#PT modle=mine\n{command}")
    assert "'modle'" in str(decider().decide(submit(comment=None, script=typed)).message)


def test_an_unknown_model_is_still_placed_by_its_precision(decider: Decide) -> None:
    answer = decider().decide(submit(comment="model=my-own-net precision=bf16-mixed"))
    assert answer.features == "bf16"


@pytest.mark.parametrize(
    ("comment", "advice"),
    [
        ("model=resnet50 precision=amp epochs=90", "batch="),
        ("model=resnet50 precision=amp batch=256", "`#PT epochs=` or `steps=`"),
        ("precision=amp epochs=90 batch=256", "model="),
    ],
)
def test_what_is_missing_is_named(decider: Decide, comment: str, advice: str) -> None:
    answer = decider().decide(submit(comment=comment))
    assert answer.time_limit is None
    assert answer.message is not None
    assert advice in answer.message


def test_a_gpu_job_that_says_nothing_is_told_how_an_estimate_comes(decider: Decide) -> None:
    for comment in (None, "my third run", "owner=me; ticket=42"):
        answer = decider().decide(submit(comment=comment))
        assert answer.message is not None
        assert answer.message.startswith("no earlier runs to go by")
        mark = parse_mark(answer.admin_comment)
        assert mark is not None
        assert mark.own == "none"
        assert answer == HookAnswer(
            log=answer.log, message=answer.message, admin_comment=answer.admin_comment, ttl_s=15
        )


def test_a_precision_nobody_stated_is_taken_as_the_slowest_one(decider: Decide) -> None:
    decide = decider()
    comment = "model=resnet50 epochs=9 batch=256 dataset_size=1281167"
    answer = decide.decide(submit(comment=comment, tres_per_node="gres:gpu:a100:4"))
    fp32 = seconds(decide, "a100", 0.95, precision="fp32", epochs=9)
    assert answer.time_limit == filled(fp32)
    assert answer.features is None
    assert answer.message is not None
    assert "precision not stated" in answer.message
    off = decider(limits={"assumed_precision": None}).decide(submit(comment=comment))
    assert off.time_limit is None


def test_a_precision_that_cannot_be_read_is_taken_as_none(decider: Decide) -> None:
    """As `estimate` says: the default is of jobs that say nothing, not of those that say two."""
    typed = {"tres_per_node": "gres:gpu:a100:4"}
    for said in ("fp16=on bf16=on", "precision=fp61"):
        comment = f"model=resnet50 epochs=9 batch=256 dataset_size=1281167 {said}"
        answer = decider().decide(submit(comment=comment, **typed))
        assert (answer.time_limit, "by physics" in (answer.message or "")) == (None, False)
        assert "invalid precision" in (answer.message or "")


def test_a_decisive_value_that_cannot_be_read_sets_no_limit(decider: Decide) -> None:
    answer = decider().decide(
        submit(comment="model=bert-large precision=amp batch=8 steps=9 seq=4O96")
    )
    assert answer.time_limit is None
    assert answer.message is not None
    assert "4O96" in answer.message


def test_unknown_keys_are_reported(decider: Decide) -> None:
    answer = decider().decide(submit(comment=JOB + " bacth=3"))
    assert answer.time_limit is not None
    assert answer.message is not None
    assert "bacth" in answer.message


def test_excluded_users_accounts_partitions_and_qos_pass(decider: Decide) -> None:
    for exclude in (
        {"users": ["u1"]},
        {"accounts": ["lab1"]},
        {"partitions": ["gpu"]},
        {"qos": ["q"]},
    ):
        answer = decider(exclude=exclude).decide(submit(qos="q"))
        assert answer == HookAnswer(log=answer.log)
        assert "excluded" in answer.log


def test_an_excluded_job_is_left_alone_but_for_its_place(decider: Decide) -> None:
    """Without one it would wait for ever behind all jobs that have one."""
    view = cluster(settings=Settings(priority="multifactor", scheduler="backfill"))
    policy = {"order": {"mode": "apply", "weight": 2, "longest_delay": "1d"}}
    answer = decider(view, exclude={"users": ["u1"]}, **policy).decide(submit())
    place = {"order": "site_factor", "other_delay": 28_800, "since": SINCE_S}
    assert answer == HookAnswer(log=answer.log, **place)  # type: ignore[arg-type]


@pytest.mark.parametrize(("place_h", "told"), [(-1, "1 h"), (1, "5 h")])
def test_under_an_order_the_start_is_told_by_ones_own_place(
    decider: Decide, place_h: int, told: str
) -> None:
    """Behind short jobs, before long ones; by nice, which tells no place, none is told."""
    policy = {"order": {"mode": "apply", "weight": 1, "longest_delay": "10h"}}
    runs, waits = slurm_job("RUNNING", 4, 60, node_names=("a1",)), slurm_job("PENDING", 4, 240)

    def message(priority: str) -> str:
        settings = Settings(priority=priority, scheduler="backfill", age_points_per_s=1.0)
        decide = decider(cluster(settings=settings), **policy)
        back_s = decide.decide(submit(time_limit=60.0)).delay
        assert back_s is not None
        others = round(BASE - back_s + 3600 * place_h)
        queue = (runs, replace(waits, priority=others))
        view = cluster(settings=settings, nodes=(gpu_node("a1"),), queue=queue)
        decide.look(view, QueueAhead.of(view))
        return decide.decide(submit(time_limit=60.0)).message or ""

    assert f"starts in about {told} 00 min, later if shorter jobs come" in message("multifactor")
    assert "starts in" not in message("basic")


@pytest.mark.parametrize("alike", [False, True])
def test_jobs_submitted_since_the_view_are_before_the_next(decider: Decide, alike: bool) -> None:
    """Alike they have one decision; still each starts after those before it."""
    decide, view = decider(), cluster(nodes=(gpu_node("a1"),), taken_s=time.time() - 60)
    decide.predictor = MadeBefore()

    def told(name: str) -> bool:
        script = f"#!/bin/sh\npython {'own' if alike else name}.py\n"
        job = submit(name=name, comment=None, script=script, time_limit=60.0)
        return "starts in about" in (decide.decide(job).message or "")

    decide.look(view, QueueAhead.of(view))
    assert [told(name) for name in "abc"] == [False, True, True]
    decide.look(view, QueueAhead.of(view))  # of before they came
    assert told("d")
    seen = replace(view, taken_s=time.time())
    decide.look(seen, QueueAhead.of(seen))
    assert [told(name) for name in "ef"] == [False, True]


def test_an_unknown_gpu_type_among_the_nodes_leaves_the_default(decider: Decide) -> None:
    odd = replace(gpu_node("a1"), name="x1", gpus=(gpu_node("a1").gpus[0],), features=frozenset())
    odd = replace(odd, gpus=(replace(odd.gpus[0], type="mystery9000"),))
    view = cluster(nodes=(*cluster().nodes, odd))
    answer = decider(view, placement={"mode": "off"}).decide(submit())
    assert answer.time_limit is None
    assert answer.message is not None
    assert "mystery9000" in answer.message
    mapped = decider(
        view, placement={"mode": "off"}, hardware={"gpu_types": {"mystery9000": "a100-sxm4-80gb"}}
    )
    assert mapped.decide(submit()).time_limit is not None


def test_a_type_of_several_cards_is_one_of_them_once_the_policy_says_which(decider: Decide) -> None:
    told = decider(cluster(), hardware={"gpu_types": {"a100": "a100-sxm4-80gb"}})
    for decide, name in ((decider(cluster()), "a100"), (told, "a100-sxm4-80gb")):
        answer = decide.decide(submit(tres_per_node="gres:gpu:a100:4"))
        assert answer.time_limit == filled(seconds(decide, name, 0.95))
    slower = [seconds(told, name, 0.5) for name in ("a100", "a100-sxm4-80gb")]
    assert slower[0] > slower[1]


def test_gpus_without_a_type_are_told_as_such(decider: Decide) -> None:
    bare = replace(gpu_node("a1"), gpus=(GpuGres(None, 4),), features=frozenset())
    answer = decider(cluster(nodes=(bare,))).decide(submit())
    assert answer.message == "GPU without a type is not known"


def test_without_node_data_a_typed_job_is_still_filled(decider: Decide) -> None:
    decide = decider(None)
    typed = decide.decide(submit(tres_per_node="gres:gpu:a100:4"))
    assert typed.time_limit == filled(seconds(decide, "a100", 0.95))
    untyped = decide.decide(submit())
    assert untyped.time_limit is None
    assert untyped.ttl_s < typed.ttl_s or untyped.ttl_s <= 5


@pytest.mark.parametrize(("refresh_s", "kept_s"), [(7, 7), (300, 60)])
def test_an_answer_is_kept_no_longer_than_the_view_it_rests_on(
    decider: Decide, refresh_s: float, kept_s: int
) -> None:
    decide = decider(slurm={"refresh_s": refresh_s})
    assert decide.decide(submit()).features is not None
    assert decide.decide(submit()).ttl_s == kept_s
    assert decide.decide(submit(tres_per_node="gres:gpu:a100:4")).ttl_s == kept_s


def test_the_mark_on_the_job_says_limit_prediction_and_job(decider: Decide) -> None:
    answer = decider().decide(submit())
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert (mark.limit, mark.tier, mark.version, mark.gpus) == (
        answer.time_limit,
        "site",
        "test",
        4,
    )
    assert mark.p50_s is not None
    assert mark.hi_s is not None
    assert mark.p50_s < mark.hi_s
    assert parse_text(mark.job, "mark").values == parse_text(JOB, "mark").values


def test_more_gpus_shorten_the_limit_and_nodes_are_counted(decider: Decide) -> None:
    decide = decider()
    one = decide.decide(submit(tres_per_node="gres:gpu:a100:4"))
    two = decide.decide(submit(tres_per_node="gres:gpu:a100:4", min_nodes=2, max_nodes=2))
    assert one.time_limit is not None
    assert two.time_limit is not None
    assert two.time_limit < one.time_limit


def test_a_user_constraint_narrows_the_gpus_the_limit_covers(decider: Decide) -> None:
    decide = decider()
    answer = decide.decide(submit(features="v100|a100"))
    assert answer.time_limit == filled(seconds(decide, "v100", 0.95))
    assert decide.decide(submit(features="a100")).time_limit == filled(
        seconds(decide, "a100", 0.95)
    )


def test_all_features_here_are_those_of_the_nodes() -> None:
    assert all(node.features == FEATURES[node.name[0]] for node in cluster().nodes)


def test_a_job_that_was_changed_is_decided_by_what_it_asks_for_now(decider: Decide) -> None:
    decide = decider()
    mark = decide.decide(submit(tres_per_node="gres:gpu:a100:4")).admin_comment
    assert mark is not None
    fewer = decide.decide(submit(tres_per_node="gres:gpu:a100:2", comment=None, admin_comment=mark))
    assert fewer.time_limit == decide.decide(submit(tres_per_node="gres:gpu:a100:2")).time_limit
    shorter = decide.decide(
        submit(tres_per_node="gres:gpu:a100:4", comment="epochs=9", admin_comment=mark)
    )
    assert shorter.time_limit < parse_mark(mark).limit  # type: ignore[union-attr, operator]


class TestPartitions:
    """A job that named no partition may be told of, or sent to, one that ends it earlier."""

    def view(self, busy: bool) -> Any:
        slow = tuple(replace(n, partitions=("gpu",)) for n in cluster().nodes if n.name[0] == "v")
        fast = tuple(replace(n, partitions=("fast",)) for n in cluster().nodes if n.name[0] == "a")
        running = tuple(
            SlurmJob(
                job_id=i,
                user="u2",
                name="other",
                state="RUNNING",
                partitions=("fast",),
                gpus=4,
                node_names=(node.name,),
                start_s=1.8e9,
                limit_min=100_000,
            )
            for i, node in enumerate(fast)
        )
        used = tuple(replace(n, gpus_used=4) for n in fast) if busy else fast
        parts = (Partition(name="gpu", default=True, max_min=2880), Partition(name="fast"))
        return cluster(nodes=slow + used, partitions=parts, queue=running if busy else ())

    def ask(self, decider: Decide, mode: str, busy: bool = False, **fields: Any) -> HookAnswer:
        choice = {"partition_mode": mode, "partition_choices": ["fast"]}
        given = {"usable_partitions": ("gpu", "fast")} | fields
        view = self.view(busy)
        decide = decider(view, placement=choice)
        decide.look(view, QueueAhead.of(view))
        answer: HookAnswer = decide.decide(submit(**given))
        return answer

    def test_the_faster_one_is_advised(self, decider: Decide) -> None:
        answer = self.ask(decider, "advise")
        assert answer.partition is None
        assert answer.message is not None
        assert "earlier in partition fast" in answer.message

    def test_the_faster_one_is_taken_and_its_limits_hold(self, decider: Decide) -> None:
        answer = self.ask(decider, "apply")
        assert answer.partition == "fast"
        assert answer.time_limit == decider().decide(submit(features="a100")).time_limit

    def test_a_queue_that_costs_more_than_the_gpu_gains_keeps_the_job(
        self, decider: Decide
    ) -> None:
        assert self.ask(decider, "apply", busy=True).partition is None

    def test_nobody_is_sent_where_they_may_not_go_or_against_their_word(
        self, decider: Decide
    ) -> None:
        assert self.ask(decider, "apply", usable_partitions=("gpu",)).partition is None
        assert self.ask(decider, "apply", partition="gpu").partition is None
        assert self.ask(decider, "off").partition is None


def test_a_job_too_long_for_the_mark_is_left_out_whole() -> None:
    mark = JobMark(limit=60, job="model=resnet50 options=" + "x" * 2000)
    assert len(mark.text()) <= MAX_CHARS
    assert parse_mark(mark.text()) == replace(mark, job="")


def test_a_job_that_no_gpu_it_may_get_can_hold_is_told(decider: Decide) -> None:
    large = decider().decide(submit(comment=JOB.replace("batch=256", "batch=4096"))).message
    assert large is not None
    assert "GiB a GPU, which has" in large
    assert "it may run out of memory" in large
    fine = decider().decide(submit()).message
    assert fine is not None
    assert "memory" not in fine


def test_a_bound_on_processor_time_ends_nothing_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its signal comes just as its timer is taken back."""
    take_back = signal.setitimer

    def late(which: int, seconds: float) -> None:
        take_back(which, seconds)
        if not seconds:
            os.kill(os.getpid(), signal.SIGPROF)

    with monkeypatch.context() as patched:
        patched.setattr(signal, "setitimer", late)
        with time_bound(0.05, cpu=True):
            pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_bound_holds_though_its_error_was_lost_in_a_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the collector's: Python tells what is raised there to nobody."""
    # pytest's own hook is Python that takes time: the next signal may fall into it.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    class Slow:
        def __del__(self) -> None:
            _busy(0.03)

    def block() -> None:
        with time_bound(0.01, cpu=True):
            Slow()
            _busy(60.0)

    with pytest.raises(CpuBoundError):
        block()


def _busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_bound_ends_nothing_a_second_time_while_it_is_left() -> None:
    """Its signal comes again while the block is left, as under load."""
    bound = TimeBound(60.0, cpu=True)
    before, late = signal.signal, 0

    def slow(number: int, handler: Any) -> Any:
        nonlocal late
        if handler is signal.SIG_IGN:
            bound._until_s = 0.0
            os.kill(os.getpid(), signal.SIGPROF)
            late += 1
        return before(number, handler)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(signal, "signal", slow)
        with bound:
            pass
    assert late == 1
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_long_limit_is_called_long_only_where_a_limit_might_be_set(decider: Decide) -> None:
    """Who follows the advice runs under it as under a limit of ours."""
    script = "#!/bin/bash\npython train.py --model resnet50 --batch-size 256 --epochs 300 --amp\n"
    doubtful = decider().decide(submit(time_limit=20000.0, script=script)).message
    thin = decider(limits={"evidence": {"max_interval_ratio": 1.001}})
    for said in (doubtful, thin.decide(submit(time_limit=20000.0)).message):
        assert said is not None
        assert "would do" not in said
    longer = submit(time_limit=math.inf, comment=JOB.replace("90", "900000"))
    said = decider().decide(longer).message
    assert said is not None
    assert "would do" not in said  # a thousand days and more


def test_a_job_that_says_all_is_not_told_to_say_it_where_nodes_are_not_known(
    decider: Decide,
) -> None:
    said = decider(None).decide(submit(tres_per_node="gres:gpu:1")).message
    assert said is not None
    assert said.startswith("not predicted: Slurm tells nothing of its nodes")
