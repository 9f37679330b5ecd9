"""The policy that fills deadlines without a webhook: its CEL gives what the webhook's rule does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission_reviews import OURS, admitted, job, knowledge

import k8s_extender.admission
from predictor.fitting import Fitted

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


def deadline_of(obj: dict[str, Any]) -> int:
    """The deadline by the policy's variables, each seeing those before it."""
    found: dict[str, Any] = {}
    for variable in policy()["variables"]:
        value = evaluate(variable["expression"], object=obj, variables=found)
        found[variable["name"]] = float(value) if variable["name"] == "stated_s" else int(value)
    return int(found["deadline_s"])


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


def test_deadlines_stay_within_what_the_api_takes() -> None:
    assert deadline_of(job({P95: "1s"})) >= 600
    assert 10**8 < deadline_of(job({P95: "99999h99999h99999h"})) <= MOST_S


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
    ],
    ids=["own", "own of pods", "declined", "nothing", "word", "empty", "negative", "too long"],
)
def test_jobs_that_are_left_alone(obj: dict[str, Any]) -> None:
    assert not matches(obj)


def test_a_job_without_annotations_is_left_alone() -> None:
    obj = job({})
    del obj["metadata"]["annotations"]
    assert not evaluate(policy()["matchConditions"][1]["expression"], object=obj)


def test_the_policy_is_bound_to_namespaces_that_ask_and_never_fails_a_creation() -> None:
    found = documents()
    binding = found["MutatingAdmissionPolicyBinding"]
    assert binding["spec"]["policyName"] == found["MutatingAdmissionPolicy"]["metadata"]["name"]
    selector = binding["spec"]["matchResources"]["namespaceSelector"]
    assert selector == {"matchLabels": {f"{OURS}deadline": "fill"}}
    assert policy()["failurePolicy"] == "Ignore"
    (rule,) = policy()["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE"]
