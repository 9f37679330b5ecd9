"""A limit that a user set stays, in whatever form; deadlines are filled where asked for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from admission_reviews import OURS, STATED, Admitted, admitted, job, knowledge, pod

from k8s_extender.decide import Decider
from predictor.estimate.fitting import Fitted

QUEUED = {"kueue.x-k8s.io/queue-name": "team-queue"}
KUEUE_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
SLINKY_LIMIT = "slurmjob.slinky.slurm.net/timelimit"
BRIDGED = {"schedulerName": "slurm-bridge-scheduler"}
FILL = f"{OURS}fill-deadline"
WEEK_S = 7 * 86400


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> Decider:
    return knowledge(fitted)


@pytest.fixture(scope="module")
def asking(fitted: Fitted) -> Decider:
    """The default policy: deadlines only where they are asked for."""
    return knowledge(fitted, deadline={"mode": "annotated"})


def limits_of(found: Admitted) -> dict[str, Any]:
    """Every limit an object states."""
    stored, metadata = found.object, found.object["metadata"]
    template = stored["spec"].get("template", {}).get("spec", {})
    all_of_them = {
        "deadline": stored["spec"].get("activeDeadlineSeconds"),
        "of pods": template.get("activeDeadlineSeconds"),
        "kueue": metadata.get("labels", {}).get(KUEUE_LIMIT),
        "slinky": found.annotations.get(SLINKY_LIMIT),
    }
    return {name: value for name, value in all_of_them.items() if value is not None}


@pytest.mark.parametrize("own_s", [1, WEEK_S, 0, 2**31 - 1])
def test_a_jobs_own_deadline_is_kept(known: Decider, own_s: int) -> None:
    assert limits_of(admitted(known, job(spec={"activeDeadlineSeconds": own_s}))) == {
        "deadline": own_s
    }


def test_a_deadline_of_its_pods_is_a_jobs_own_limit_too(known: Decider) -> None:
    assert limits_of(admitted(known, job(pod={"activeDeadlineSeconds": WEEK_S}))) == {
        "of pods": WEEK_S
    }


def test_a_pods_own_deadline_is_kept(known: Decider) -> None:
    obj = pod()
    obj["spec"]["activeDeadlineSeconds"] = WEEK_S
    assert limits_of(admitted(known, obj)) == {"deadline": WEEK_S}


def test_a_limit_for_kueue_is_joined_by_no_other(known: Decider) -> None:
    labels = QUEUED | {KUEUE_LIMIT: "777"}
    assert limits_of(admitted(known, job(labels=labels, pod=BRIDGED))) == {"kueue": "777"}


@pytest.mark.parametrize("own", ["600", "1-12:00:00", "4h", "nonsense"])
def test_a_limit_for_the_slurm_bridge_is_joined_by_no_other(known: Decider, own: str) -> None:
    obj = job(STATED | {SLINKY_LIMIT: own}, labels=QUEUED, pod=BRIDGED)
    assert limits_of(admitted(known, obj)) == {"slinky": own}


def test_a_limit_in_the_old_words_of_the_slurm_bridge_is_kept(known: Decider) -> None:
    obj = job(STATED | {"slinky.slurm.net/timelimit": "600"}, pod=BRIDGED)
    assert limits_of(admitted(known, obj)) == {}


def test_a_jobs_own_deadline_is_what_kueue_and_the_slurm_bridge_hear(known: Decider) -> None:
    obj = job(labels=QUEUED, pod=BRIDGED, spec={"activeDeadlineSeconds": 5430})
    assert limits_of(admitted(known, obj)) == {"deadline": 5430, "kueue": "5430", "slinky": "91"}


def test_annotations_that_the_user_wrote_are_kept(known: Decider) -> None:
    own = {f"{OURS}predicted-duration": "5h", f"{OURS}predicted-basis": "I measured it"}
    found = admitted(known, job(STATED | own))
    assert found.annotations.items() >= own.items()
    inner = found.object["spec"]["template"]["metadata"]["annotations"]
    assert inner.items() >= own.items()


def test_nothing_that_was_there_is_ever_changed(known: Decider) -> None:
    obj = job(labels=QUEUED, pod=BRIDGED)
    found = admitted(known, obj)
    assert {operation["op"] for operation in found.operations} == {"add"}
    assert _holds(found.object, obj)


def _holds(more: Any, less: Any) -> bool:
    if isinstance(less, dict):
        return all(key in more and _holds(more[key], less[key]) for key in less)
    return bool(more == less)


def test_an_own_deadline_that_is_probably_too_short_is_told_and_kept(known: Decider) -> None:
    open_ = known.config.model_copy(
        update={"filter": known.config.filter.model_copy(update={"deadline": False})}
    )
    relaxed = Decider(known.predictor, open_, known.nodes)
    found = admitted(relaxed, job(spec={"activeDeadlineSeconds": 3600}))
    words = "probably takes longer than your deadline of 1h, which stays as you set it"
    assert words in found.said
    assert found.object["spec"]["activeDeadlineSeconds"] == 3600


def test_an_own_deadline_that_no_gpu_can_meet_is_told(known: Decider) -> None:
    hard = job(STATED | {f"{OURS}deadline-hard": "true"}, spec={"activeDeadlineSeconds": 60})
    said = admitted(known, hard).said
    assert "no known node can take it (predicted run time exceeds the deadline" in said


def test_nobody_is_advised_to_shorten_a_deadline(known: Decider) -> None:
    said = admitted(known, job(spec={"activeDeadlineSeconds": 2**31 - 1})).said
    assert "your deadline" not in said


def test_a_fitting_own_deadline_needs_no_word(known: Decider) -> None:
    filled = admitted(known, job()).object["spec"]["activeDeadlineSeconds"]
    (line,) = admitted(known, job(spec={"activeDeadlineSeconds": filled + 1})).response["warnings"]
    assert "deadline" not in line


def test_kueue_and_the_slurm_bridge_get_the_deadline_that_was_filled(known: Decider) -> None:
    found = limits_of(admitted(known, job(labels=QUEUED, pod=BRIDGED)))
    assert found.keys() == {"deadline", "kueue", "slinky"}
    assert found["kueue"] == str(found["deadline"])
    assert 60 * int(found["slinky"]) - 60 < found["deadline"] <= 60 * int(found["slinky"])


def test_only_jobs_of_a_queue_or_of_the_bridge_hear_of_their_limits(known: Decider) -> None:
    assert limits_of(admitted(known, job())).keys() == {"deadline"}


def test_an_annotation_for_the_bridge_is_as_good_as_its_scheduler(known: Decider) -> None:
    obj = job(STATED | {"slurmjob.slinky.slurm.net/partition": "gpu"})
    assert limits_of(admitted(known, obj)).keys() == {"deadline", "slinky"}


def test_kueue_and_the_slurm_bridge_can_be_left_out(fitted: Fitted) -> None:
    closed = knowledge(fitted, deadline={"mode": "always", "kueue": False, "slinky": False})
    assert limits_of(admitted(closed, job(labels=QUEUED, pod=BRIDGED))).keys() == {"deadline"}


def test_by_default_a_deadline_is_filled_only_where_it_is_asked_for(asking: Decider) -> None:
    assert limits_of(admitted(asking, job(labels=QUEUED, pod=BRIDGED))) == {}
    assert f"{OURS}predicted-duration" in admitted(asking, job()).annotations


def test_an_annotation_on_object_or_template_asks_for_a_deadline(asking: Decider) -> None:
    template = job()
    template["spec"]["template"]["metadata"] = {"annotations": {FILL: "true"}}
    for obj in (job(STATED | {FILL: "true"}), template, pod(STATED | {FILL: "True"})):
        assert limits_of(admitted(asking, obj)).keys() == {"deadline"}


def test_the_label_of_a_namespace_asks_for_a_deadline(asking: Decider) -> None:
    assert limits_of(admitted(asking, job(), labelled=True)).keys() == {"deadline"}


def test_an_annotation_declines_a_deadline(asking: Decider, known: Decider) -> None:
    declined = job(STATED | {FILL: "false"})
    assert limits_of(admitted(asking, declined, labelled=True)) == {}
    assert limits_of(admitted(known, declined)) == {}


def test_switched_off_no_deadline_is_filled_and_times_are(fitted: Fitted) -> None:
    off = knowledge(fitted, deadline={"mode": "off"})
    found = admitted(off, job(STATED | {FILL: "true"}), labelled=True)
    assert limits_of(found) == {}
    assert f"{OURS}predicted-duration" in found.annotations


@pytest.mark.parametrize("make", [job, pod])
@pytest.mark.parametrize("mode", ["always", "annotated", "off"])
def test_a_second_review_changes_nothing_and_says_the_same(
    fitted: Fitted, make: Any, mode: str
) -> None:
    known = knowledge(fitted, deadline={"mode": mode})
    first = admitted(known, make(STATED | {"slurmjob.slinky.slurm.net/qos": "normal"}))
    second = admitted(known, copy.deepcopy(first.object))
    assert first.operations
    assert not second.operations
    assert second.said == first.said


def test_a_queue_that_another_webhook_adds_hears_of_the_deadline_next_time(
    known: Decider,
) -> None:
    first = copy.deepcopy(admitted(known, job()).object)
    first["metadata"]["labels"] |= QUEUED
    second = limits_of(admitted(known, first))
    assert second["kueue"] == str(second["deadline"])


def test_an_update_and_a_sub_resource_are_left_alone(known: Decider) -> None:
    for request in ({"operation": "UPDATE"}, {"operation": "DELETE"}, {"subResource": "status"}):
        assert not admitted(known, job(), **request).operations


def test_a_dry_run_is_answered_as_the_creation_would_be(known: Decider) -> None:
    assert admitted(known, job(), dryRun=True) == admitted(known, job())


@pytest.mark.parametrize(("wish", "seconds"), [("4h", 14400), ("90s", 90), ("400h", 1_440_000)])
def test_a_deadline_that_the_user_wishes_is_what_is_filled(
    known: Decider, wish: str, seconds: int
) -> None:
    """Neither cut nor exceeded, whatever is predicted, and without a label of the namespace."""
    found = admitted(known, job(STATED | {f"{OURS}deadline": wish}))
    assert found.object["spec"]["activeDeadlineSeconds"] == seconds
    assert f"{OURS}expected-run-time" in found.annotations


@pytest.mark.parametrize("wish", ["10000d", "0s", "-1h", "soon"])
def test_an_absurd_wish_is_named_and_not_clipped(known: Decider, wish: str) -> None:
    found = admitted(known, job(STATED | {f"{OURS}deadline": wish}))
    assert f"invalid deadline='{wish}'; expected a duration such as 4h" in found.said
    assert found.object["spec"].get("activeDeadlineSeconds", 0) < 366 * 86400


def test_an_absurd_length_gets_a_message_and_no_deadline(known: Decider) -> None:
    endless = {k: v for k, v in STATED.items() if "epochs" not in k} | {f"{OURS}steps": "9" * 11}
    found = admitted(known, job(endless))
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "more than a year: check steps and epochs" in found.said
