"""The policy that fills deadlines without a webhook: its CEL gives what the webhook's rule does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission_reviews import OURS, admitted, job, knowledge

import k8s_extender.admission
from predictor.estimate.fitting import Fitted

NAMESPACE_LABEL = f"{OURS}deadline"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
SLINKY = "slurmjob.slinky.slurm.net/"
POLICY_FILE = Path(k8s_extender.admission.__file__).parent / "policy.yaml"
P95, MEDIAN, FILL = (f"{OURS}{n}" for n in ("predicted-p95", "predicted-duration", "fill-deadline"))
MOST_S = 2**31 - 1


def documents() -> dict[str, Any]:
    return {raw["kind"]: raw for raw in yaml.safe_load_all(POLICY_FILE.read_text())}


def policy() -> Any:
    return documents()["MutatingAdmissionPolicy"]["spec"]


def evaluate(expression: str, **given: Any) -> Any:
    celpy = pytest.importorskip("celpy", reason="needs cel-python")
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return program.evaluate({name: celpy.json_to_cel(value) for name, value in given.items()})


def matches(obj: dict[str, Any]) -> bool:
    conditions = [condition["expression"] for condition in policy()["matchConditions"]]
    return all(bool(evaluate(expression, object=obj)) for expression in conditions)


def variables_of(obj: dict[str, Any], namespace: dict[str, str] | None = None) -> dict[str, Any]:
    """The policy's variables, each seeing those before it."""
    found: dict[str, Any] = {}
    place = {"metadata": {} if namespace is None else {"labels": namespace}}
    for variable in policy()["variables"]:
        expression, given = variable["expression"], {"object": obj, "namespaceObject": place}
        value = evaluate(expression, variables=found, **given)
        plain = {"BoolType": bool, "IntType": int, "StringType": str}
        found[variable["name"]] = plain.get(type(value).__name__, float)(value)
    return found


def deadline_of(obj: dict[str, Any]) -> int:
    return int(variables_of(obj)["deadline_s"])


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [("3h41m", 13260), ("1h1s", 3601), ("45s", 45), ("30m", 1800), ("90h", 324000)],
)
def test_the_deadline_is_the_95_percent_time_with_start_up_and_checkpoints(
    stated: str, seconds: int
) -> None:
    wanted = math.ceil((seconds * 1.02 + 600) / 60) * 60
    obj = job({P95: stated, MEDIAN: "1h"})
    assert matches(obj)
    assert deadline_of(obj) == max(600, wanted)


def test_a_median_alone_is_taken_one_and_a_half_times() -> None:
    assert deadline_of(job({MEDIAN: "2h"})) == deadline_of(job({P95: "3h"}))


def test_what_the_webhook_writes_gives_the_deadline_the_webhook_fills(fitted: Fitted) -> None:
    filled = admitted(knowledge(fitted), job()).object
    by_webhook = filled["spec"].pop("activeDeadlineSeconds")
    assert matches(filled)
    assert abs(deadline_of(filled) - by_webhook) <= 60  # annotations hold whole seconds


@pytest.mark.parametrize(
    ("completions", "parallelism", "runs"), [(1, 1, 1), (4, 4, 1), (5, 1, 5), (21, 4, 6), (3, 0, 3)]
)
def test_runs_one_after_another_are_counted_as_the_webhook_counts_them(
    fitted: Fitted, completions: int, parallelism: int, runs: int
) -> None:
    filled = admitted(
        knowledge(fitted), job(spec={"completions": completions, "parallelism": parallelism})
    ).object
    by_webhook = filled["spec"].pop("activeDeadlineSeconds")
    assert variables_of(filled)["runs"] == runs
    assert abs(deadline_of(filled) - by_webhook) <= 60 * runs


@pytest.mark.parametrize(
    ("namespace", "object_", "said", "asked"),
    [
        ("fill", None, None, True),
        ("fill", "annotated", None, True),
        ("annotated", None, None, False),
        ("annotated", None, "True", True),
        ("annotated", "fill", None, False),
        (None, "fill", None, True),
        ("other", "fill", None, True),
        (None, "annotated", "true", True),
        (None, "annotated", None, False),
    ],
)
def test_a_deadline_is_asked_for_as_the_webhook_is_asked(
    namespace: str | None, object_: str | None, said: str | None, asked: bool
) -> None:
    def labelled(value: str | None) -> dict[str, str]:
        return {} if value is None else {NAMESPACE_LABEL: value}

    annotations = {P95: "1h"} | ({} if said is None else {FILL: said})
    obj = job(annotations, labels=labelled(object_))
    assert variables_of(obj, labelled(namespace))["asked"] is asked


def test_kueue_and_the_slurm_bridge_hear_of_it_where_the_job_is_theirs() -> None:
    alone = variables_of(job({P95: "1h"}))
    assert (alone["queued"], alone["bridged"]) == (False, False)
    both = variables_of(job({P95: "1h", f"{SLINKY}qos": "normal"}, labels={KUEUE_QUEUE: "team"}))
    assert (both["queued"], both["bridged"]) == (True, True)
    assert both["filled"] == str(both["deadline_s"])
    assert int(both["minutes"]) == math.ceil(both["deadline_s"] / 60)
    by_scheduler = job({P95: "1h"}, pod={"schedulerName": "slurm-bridge-scheduler"})
    assert variables_of(by_scheduler)["bridged"]


def test_a_deadline_too_short_for_the_median_is_not_enough() -> None:
    assert variables_of(job({P95: "99999h", MEDIAN: "1h"}))["enough"]
    endless = {"completions": 10**6, "parallelism": 1}
    assert not variables_of(job({MEDIAN: "99999h"}, spec=endless))["enough"]


def test_deadlines_stay_within_what_the_api_takes() -> None:
    assert deadline_of(job({P95: "1s"})) >= 600
    assert 10**8 < deadline_of(job({P95: "99999h99999h99999h"})) <= MOST_S


def declining_template() -> dict[str, Any]:
    obj = job({P95: "1h"})
    obj["spec"]["template"]["metadata"] = {"annotations": {FILL: "false"}}
    return obj


@pytest.mark.parametrize(
    "obj",
    [
        job({P95: "1h"}, spec={"activeDeadlineSeconds": 60}),
        job({P95: "1h"}, pod={"activeDeadlineSeconds": 60}),
        job({P95: "1h", FILL: "false"}),
        job({}),
        job({P95: "soon"}),
        job({P95: ""}),
        job({P95: "-1h"}),
        job({P95: "9999999h"}),
        job({P95: "1h", FILL: "False"}),
        declining_template(),
        job({P95: "1h"}, labels={KUEUE_LIMIT: "600"}),
        job({P95: "1h", f"{SLINKY}timelimit": "10"}),
        job({P95: "1h", "slinky.slurm.net/timelimit": "10"}),
    ],
    ids=[
        "own",
        "own of pods",
        "declined",
        "nothing",
        "word",
        "empty",
        "negative",
        "too long",
        "declined in capitals",
        "declined in the template",
        "limit of Kueue",
        "limit of the bridge",
        "old limit of the bridge",
    ],
)
def test_jobs_that_are_left_alone(obj: dict[str, Any]) -> None:
    assert not matches(obj)


def test_a_job_without_annotations_is_left_alone() -> None:
    obj = job({})
    del obj["metadata"]["annotations"]
    assert not matches(obj)


def test_the_policy_is_bound_to_namespaces_that_ask_and_never_fails_a_creation() -> None:
    found = documents()
    binding = found["MutatingAdmissionPolicyBinding"]
    assert binding["spec"]["policyName"] == found["MutatingAdmissionPolicy"]["metadata"]["name"]
    (rule,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert rule == {"key": NAMESPACE_LABEL, "operator": "In", "values": ["fill", "annotated"]}
    assert policy()["failurePolicy"] == "Ignore"
    (rule,) = policy()["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE"]
