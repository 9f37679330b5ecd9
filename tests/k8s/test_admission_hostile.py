"""Whatever comes in, the answer is a review that allows, or an error that names what is wrong."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonpatch
import pytest
from admission_reviews import (
    OURS,
    STATED,
    admitted,
    applied,
    captured,
    job,
    knowledge,
    manifest,
    pod,
    review_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from k8s_metric_names import NoNodes
from mutants import mutants

from k8s_extender.admission import Admission, Outcome, Reviewed
from k8s_extender.admission.review import MAX_BODY_BYTES
from k8s_extender.config import Config
from k8s_extender.decide import Decider
from k8s_extender.errors import WireError
from k8s_extender.server.state import ExtenderMetrics, ServerState
from k8s_extender.server.verbs import admission_handlers
from predictor.estimate.fitting import Fitted

LABELLED = {"kueue.x-k8s.io/queue-name": "q"}
OBJECTS = [
    job(labels=LABELLED, pod={"schedulerName": "slurm-bridge-scheduler"}),
    pod(),
    *(
        manifest(name, annotations=dict(STATED), labels=LABELLED)
        for name in ("job", "pytorchjob", "jobset", "rayjob", "workload")
    ),
]


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> Decider:
    return knowledge(fitted)


@pytest.mark.parametrize("name", ["job", "pod"])
def test_what_a_real_api_server_sent_is_answered(known: Decider, name: str) -> None:
    found = applied(Admission(lambda: known), captured(name))
    assert not found.operations  # its containers say nothing of what they train


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(OBJECTS).flatmap(lambda o: st.tuples(st.just(o["kind"]), mutants([o]))))
def test_an_object_of_any_shape_is_allowed_and_the_patch_applies(
    known: Decider, bent: tuple[str, Any]
) -> None:
    kind, obj = bent
    heard: list[Reviewed] = []
    raw = review_of(obj, of_kind=kind)
    try:
        first = applied(Admission(lambda: known, heard.append), raw)
    except WireError:
        assert "\\ud800" in json.dumps(raw)  # half of a character is no JSON
        return
    assert heard[0].outcome in (Outcome.PATCHED, Outcome.UNCHANGED)
    again = review_of(first.object, of_kind=kind)
    assert not applied(Admission(lambda: known), again).operations


@settings(max_examples=200)
@given(mutants([review_of(OBJECTS[0])]))
def test_a_review_of_any_shape_is_answered_or_named_wrong(known: Decider, raw: Any) -> None:
    try:
        answer = json.loads(Admission(lambda: known).review(json.dumps(raw).encode()))
    except WireError:
        return
    assert answer["response"]["uid"] == raw["request"]["uid"]
    assert answer["response"]["allowed"] is True


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_bytes_that_are_no_review_are_named_wrong(known: Decider, body: bytes) -> None:
    with pytest.raises(WireError):
        Admission(lambda: known).review(body)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b" " * (MAX_BODY_BYTES + 1), b"null", b"{}"],
    ids=["deep lists", "deep objects", "too long", "null", "empty"],
)
def test_bodies_meant_to_hurt_are_named_wrong(known: Decider, body: bytes) -> None:
    with pytest.raises(WireError):
        Admission(lambda: known).review(body)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"apiVersion": "admission.k8s.io/v1beta1"}, "apiVersion"),
        ({"kind": "Pod"}, "apiVersion and kind"),
        ({"request": None}, r"request\.uid"),
    ],
)
def test_an_error_names_what_is_expected(
    known: Decider, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(WireError, match=f"{named}.*expected"):
        Admission(lambda: known).review(json.dumps(captured("job") | change).encode())


def test_before_the_predictor_is_loaded_objects_pass_as_they_are() -> None:
    heard: list[Reviewed] = []
    found = applied(Admission(lambda: None, heard.append), review_of(job()))
    assert not found.operations
    assert [reviewed.outcome for reviewed in heard] == [Outcome.NOT_READY]


class _Broken:
    """A table that fails as it is read."""

    def values(self) -> Any:
        raise ArithmeticError("a table of nodes that is broken")


def test_an_error_of_ours_lets_the_object_pass_and_is_logged(
    known: Decider, caplog: pytest.LogCaptureFixture
) -> None:
    broken: Any = _Broken()
    heard: list[Reviewed] = []
    sick = Decider(known.predictor, known.config, lambda: broken)
    found = applied(Admission(lambda: sick, heard.append), review_of(job()))
    assert not found.operations
    assert [reviewed.outcome for reviewed in heard] == [Outcome.FAILED]
    assert "review of Job default/w-job failed" in caplog.text


def test_who_hears_of_reviews_cannot_spoil_them(known: Decider) -> None:
    state, told = ServerState(Config(), NoNodes()), list[str]()
    state.decider = known

    class Deaf(ExtenderMetrics):
        def answered(self, *_: object) -> None:
            raise ValueError("deaf")

    async def reviewed() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, why: told.append(str(why["exception"])))
        answer = admission_handlers(state, Deaf())["mutate"](json.dumps(review_of(job())).encode())
        await asyncio.sleep(0)
        return answer

    assert json.loads(asyncio.run(reviewed()))["response"]["patch"]
    assert told == ["deaf"]


def test_each_review_is_told_with_its_outcome(known: Decider) -> None:
    heard: list[Reviewed] = []
    found = applied(Admission(lambda: known, heard.append), review_of(job()))
    (reviewed,) = heard
    assert (reviewed.outcome, reviewed.request.kind) == (Outcome.PATCHED, "Job")
    assert reviewed.request.name == "default/w-job"
    assert reviewed.decision.deadline_s == found.object["spec"]["activeDeadlineSeconds"]
    assert reviewed.duration_s > 0


def test_annotations_are_left_out_where_the_object_has_no_room_for_them(known: Decider) -> None:
    full = STATED | {"team/notes": "x" * (256 * 1024 - 300)}
    found = admitted(known, job(full))
    assert found.annotations.keys() <= full.keys() | {
        f"{OURS}filled-deadline-seconds",
        f"{OURS}expected-run-time",
    }
    size = sum(len(k) + len(v) for k, v in found.annotations.items())
    assert size <= 256 * 1024


def test_warnings_stay_within_what_the_api_server_takes(known: Decider) -> None:
    noisy = {
        f"{OURS}{key}": "\x07\n" + "é" * 9000
        for key in ("model", "batch-size", "epochs", "steps", "precision", "gpu", "fabric")
    }
    warnings = admitted(known, job(noisy)).response["warnings"]
    assert warnings
    assert sum(len(line.encode()) for line in warnings) <= 4096
    assert all(len(line) <= 256 for line in warnings)
    assert all(line.isprintable() for line in warnings)


def test_names_with_slashes_and_tildes_are_pointed_at_right(known: Decider) -> None:
    obj = manifest("pytorchjob", annotations=dict(STATED))
    replicas = obj["spec"]["pytorchReplicaSpecs"]
    replicas["a~1/b~0"] = replicas.pop("Worker")
    replicas["a~1/b~0"]["template"]["metadata"] = None
    stored = admitted(known, obj).object
    inner = stored["spec"]["pytorchReplicaSpecs"]["a~1/b~0"]["template"]["metadata"]
    assert f"{OURS}predicted-basis" in inner["annotations"]


def test_a_patch_is_rfc_6902(known: Decider) -> None:
    found = admitted(known, job())
    assert jsonpatch.JsonPatch(found.operations).apply(job()) == found.object
    assert all(operation.keys() == {"op", "path", "value"} for operation in found.operations)
